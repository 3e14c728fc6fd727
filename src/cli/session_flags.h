#pragma once
// The flags that train and bench share: which model, on what, how.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/network.h"
#include "train/session.h"
#include "train/weights.h"

namespace overtake {

struct SessionFlags {
  std::string model;
  std::string settings;  // --set
  std::int64_t batch = 0;
  std::string loss = "cross-entropy";  // of an ONNX file
  std::string output;                  // likewise
  std::vector<std::string> frozen;     // beginnings of names
  std::string init;                    // safetensors to start from
  std::vector<std::string> init_skip;
  std::uint64_t seed = 0;
  double learning_rate = 0.01;
  std::string optimizer = "sgd";
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double clip_norm = 0;
  std::string device = "cpu";
  std::string precision;  // empty: the device's own
  unsigned threads = 0;
  bool no_tuning = false;
  bool no_graph = false;
  unsigned side_sms = 0;
  unsigned virtual_gpus = 0;
  std::string virtual_link;  // "25 GB/s,5 us"
  unsigned parts = 0;
  std::string memory_cap;
  double plan_seconds = 10;
  bool fresh_profile = false;
  std::vector<std::string> skip_passes;
  bool no_layouts = false;
  bool print_passes = false;
  bool json = false;

  void add_to(CLI::App& command);
  ModelSettings model_settings() const;
  // The model, and what its weights start from: the file's, those of --init, or nothing.
  struct Start {
    Graph graph;
    std::vector<NamedTensor> initial;
    NameRule names;  // how the weights are called where they came from
  };
  Start load() const;
  // User errors name the flag.
  SessionOptions options(ScheduleChoice schedule) const;
  // What decides the weights, for checkpoints.
  nlohmann::json optimizer_json() const;
};

}  // namespace overtake
