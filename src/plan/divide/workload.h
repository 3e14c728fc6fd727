#pragma once
// A training step as blocks, with what they take on the devices of a run: what is divided over devices.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "overtake/machine.h"
#include "plan/divide/blocks.h"
#include "plan/divide/parallel_options.h"

namespace overtake {

// What a step computes, whatever its division.
struct Workload {
  BlockGraph blocks;  // with what tasks take on the devices of the run, on average
  // For each kind of device in the machine's cluster, what the blocks' tasks take there; empty for kinds that have no
  // part in the run. No kinds at all: on every device what the blocks say.
  std::vector<std::vector<TaskCost>> by_kind = {};
  std::int64_t samples = 0;  // of a step; 0: not known
};

struct WorkloadOptions {
  bool recompute = false;                    // what a block keeps for its gradients is computed again instead
  std::optional<std::uint32_t> blocks = {};  // at most; none: as fine as schedules need and time allows
  std::uint32_t kept_replicas = 0;           // that are simulated, which is what takes the time; 0: all
};

// The most blocks a step is cut into. Data parallel every layer counts; stages of a pipeline, and chunks of them, are
// cut of a few blocks each; and what is computed again should be much more than what is kept for it.
std::uint32_t block_limit(const ParallelOptions& options, bool recomputes);

// `step` is of one micro-batch; `costs` are those of its tasks for each kind of device, `kinds` the kinds in the run.
Workload make_workload(const Graph& step, const std::vector<std::vector<TaskCost>>& costs,
                       std::span<const KindCount> kinds, const ParallelOptions& parallel,
                       const WorkloadOptions& options = {});

// The samples that a graph's inputs hold.
std::int64_t samples_of(const Graph& graph);

}  // namespace overtake
