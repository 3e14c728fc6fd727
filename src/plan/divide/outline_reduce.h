#pragma once
// How the gradients of a divided step are brought together, and the updates that follow.

#include <cstdint>
#include <map>
#include <vector>

#include "plan/divide/outline_compute.h"
#include "plan/divide/outline_step.h"

namespace overtake {

// Transfers by device, in their order.
struct Reductions {
  std::map<std::uint32_t, std::vector<TaskId>> sums, gathers;
};

// Ties and updates take their places in the lanes.
Reductions reduce_and_update(const OutlineProblem& problem, OutlineStep& step, ComputeLanes& compute);

}  // namespace overtake
