#pragma once
// What a simulated step computes, whatever the spreading.

#include <cstdint>
#include <string>

#include "cost/cluster.h"
#include "passes/parallel/blocks.h"

namespace overtake {

struct RunSpec;

struct WorkloadSpec {
  std::string model = {}, settings = {}, precision = "bf16", optimizer = "adamw";
  std::string measure_on = {};  // "cpu" or "cuda": what tasks take is measured there; empty: computed
  std::int64_t batch = 0;       // of a step over all devices; 0: the network's for each piece
  std::uint32_t blocks = 0;     // at most; 0: as fine as schedules need and time allows
  bool recompute = false;
};

struct Workload {
  BlockGraph blocks;
  std::int64_t samples = 0;  // of a step; 0: not known
};

// A network of the zoo or an ONNX file on such devices. User errors: no such model, setting or precision, a batch that
// cannot be cut evenly.
Workload model_workload(const WorkloadSpec& spec, const RunSpec& run, const DeviceType& device);

}  // namespace overtake
