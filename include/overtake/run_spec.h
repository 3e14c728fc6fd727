#pragma once
// What a user wants of a training run, as plain data. The table of its fields (src/run/field.h) has their names,
// meanings and bounds; flags, files, checkpoints and what ranks compare come from that table. A member has the name of
// its field, except where a comment says so.

#include <cstdint>
#include <string>
#include <vector>

#include "overtake/optimizer_settings.h"

namespace overtake {

// A number whose default of 0 is outside its bounds is not given unless it is set: then something else decides.
struct RunSpec {
  std::string model;
  std::string settings;    // field `set`, of the network: "layers=6,width=512"
  std::int64_t batch = 0;  // samples in a step, over all devices; 0: the network's own
  std::string init;        // a safetensors file to start from
  std::vector<std::string> init_skip;
  std::string loss = "cross-entropy";  // of an ONNX file
  bool accept_folded = false;
  std::string output;                      // of an ONNX file
  std::vector<std::string> freeze;         // beginnings of names
  std::vector<std::string> train_tensors;  // of an ONNX file; beginnings of names
  std::uint64_t seed = 0;

  double lr = 0.01;
  std::string lr_schedule = "constant";
  std::uint64_t warmup = 0;
  std::string optimizer = "sgd";
  double momentum = OptimizerSettings{}.momentum;
  bool nesterov = OptimizerSettings{}.nesterov;
  double weight_decay = OptimizerSettings{}.weight_decay;
  double beta1 = OptimizerSettings{}.beta1;
  double beta2 = OptimizerSettings{}.beta2;
  double eps = OptimizerSettings{}.eps;
  double clip_norm = OptimizerSettings{}.clip_norm;

  std::string data;   // empty: synthetic, for networks of the zoo
  std::string scale;  // of npy inputs: "1/255", "2.5"; empty: none
  bool channels_last = false;
  bool augment = false;
  std::uint64_t steps = 0;  // in all, counted from the very start; 0: by epochs
  std::uint64_t epochs = 1;

  std::string machine;             // a preset or a file that plans are made for; empty: this machine, measured
  std::string plan;                // a plan file to run instead of planning
  bool trials = true;              // the best few plans are tried out for real
  std::string devices;             // of the machine: "0-3,8"; empty: the first ones
  std::string algorithm = "auto";  // of collectives on the machine
  std::string chunk = "4M";        // bytes after which a more urgent collective goes first; 0: never
  std::string device = "cpu";
  std::string precision;  // empty: the device's own
  std::uint32_t threads = 0;
  std::uint32_t parts = 0;
  std::string memory_cap;
  double plan_seconds = 0;  // 0: by the length of the run
  bool fresh_profile = false;
  std::string schedule = "auto";
  std::vector<std::string> skip_passes;  // field `skip_pass`
  bool layouts = true;
  bool tuning = true;
  bool graph = true;
  std::uint32_t side_sms = 0;
  std::uint32_t virtual_gpus = 0;
  std::string virtual_link;  // "25GB/s,5us"

  std::uint32_t replicas = 1;       // field `dp`
  std::uint32_t stages = 1;         // field `pp`
  std::uint32_t micro_batches = 1;  // of one replica
  std::string pipeline = "1f1b";
  std::uint32_t chunks = 2;        // per device, of the pipeline interleaved
  std::uint32_t chunk_stages = 1;  // blocks per chunk, of the pipeline modulo
  bool two_way = false;            // a search may put a layer on two devices
  bool recompute = false;          // activations are computed again for the gradients
  std::uint32_t blocks = 0;        // most blocks that a step is divided by; 0: as fine as schedules need
  std::uint64_t search_tries = 0;  // of the search for a pipeline's schedule; 0: what takes about two seconds
  std::string reduce = "buckets";
  std::string first_k;  // "12", "12@30"; empty: the fastest
  std::string bucket = "25M";
  std::uint32_t gradient_groups = 1;
  bool predict = false;
  bool sync_batch_norm = false;
  double time_out = 60, patience = 1800;  // seconds

  std::string save;
  std::uint64_t save_every = 0;
  std::uint64_t keep = 1;  // generations of a checkpoint
  std::string resume;
  std::string trace;
};

}  // namespace overtake
