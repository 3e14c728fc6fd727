#pragma once
// What a simulated step computes, whatever the spreading.

#include <cstdint>
#include <string>
#include <vector>

#include "machine/cluster.h"
#include "plan/divide/blocks.h"

namespace overtake {

struct RunSpec;

struct WorkloadSpec {
  std::string model = {}, settings = {}, precision = "bf16", optimizer = "adamw";
  std::string measure_on = {};    // "cpu" or "cuda": what tasks take is measured there; empty: as the cluster says
  std::string save_profile = {};  // what was measured goes into this file
  std::int64_t batch = 0;         // of a step over all devices; 0: the network's for each piece
  std::uint32_t blocks = 0;       // at most; 0: as fine as schedules need and time allows
  bool recompute = false;
};

struct Workload {
  BlockGraph blocks;  // with what tasks take on the devices of the run, on average
  // Per kind of device in the cluster, what the blocks' tasks take there; empty for kinds that have no part in the run.
  // No kinds at all: on every device what the blocks say.
  std::vector<std::vector<TaskCost>> by_kind = {};
  std::int64_t samples = 0;  // of a step; 0: not known
};

// A network of the zoo or an ONNX file on the devices of a run. User errors: no such model, setting or precision, a
// batch that cannot be cut evenly, a profile of something else.
Workload model_workload(const WorkloadSpec& spec, const RunSpec& run, const Cluster& cluster, const Topology& topology);

}  // namespace overtake
