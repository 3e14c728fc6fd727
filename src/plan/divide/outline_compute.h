#pragma once
// What the devices of a divided step compute, each in the order the schedule gives it.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "plan/divide/outline_step.h"

namespace overtake {

struct ComputeLanes {
  std::vector<std::vector<TaskId>> lanes;             // per device; kNone at late places
  std::vector<std::vector<std::uint32_t>> blocks_on;  // per device
  struct LatePlace {
    std::uint32_t device;
    std::size_t at;
    std::uint32_t block;
  };
  std::vector<LatePlace> late_places;  // of updates
  struct Need {
    BufferId buffer;
    TaskId by;
  };
  std::vector<Need> needs;                     // of blocks that are one task: at its first
  std::unordered_map<TaskId, TaskId> held_by;  // what a task makes leaves when this one is done
};

// Forwards and gradients; ties and updates are still to come.
ComputeLanes compute_lanes(const OutlineProblem& problem, OutlineStep& step);

}  // namespace overtake
