#pragma once
// What a simulated step computes, whatever the spreading.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/divide/step_planner.h"

namespace overtake {

struct SimulatedSpec;

struct WorkloadSpec {
  std::string model = {}, settings = {}, precision = "bf16", optimizer = "adamw";
  std::string measure_on = {};    // "cpu" or "cuda": what tasks take is measured there; empty: as the cluster says
  std::string save_profile = {};  // what was measured goes into this file
  std::int64_t batch = 0;         // of a step over all devices; 0: the network's for each piece
  std::uint32_t blocks = 0;       // at most; 0: as fine as schedules need and time allows
  bool recompute = false;
};

// A network of the zoo or an ONNX file on the devices of a run. User errors: no such model, setting or precision, a
// batch that cannot be cut evenly, a profile of something else.
Workload model_workload(const WorkloadSpec& spec, const SimulatedSpec& run, const Machine& machine);

}  // namespace overtake
