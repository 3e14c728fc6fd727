#pragma once
// Clips gradients by their global norm over all devices of a plan.

#include "overtake/target.h"
#include "plan/divide/detail.h"

namespace overtake {

// Every device adds up the squares of each gradient that it updates with; the stages of a replica exchange these few
// numbers, and each adds them in the order of the parameters of `step`, which the plan repeats task by task. So the
// factor is the same on all, and the same however the plan is laid out. Replicas have the same gradients by then. No
// update of the plan is delayed.
Detail clip_gradients(Detail plan, const Graph& step, double max_norm, const Target& target);

}  // namespace overtake
