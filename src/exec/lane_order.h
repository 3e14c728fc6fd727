#pragma once
// The order of a plan as executors keep it: each lane's tasks, and what each waits for on other lanes.

#include <vector>

#include "graph/plan.h"

namespace overtake {

struct LaneEntry {
  TaskId task = 0;
  std::vector<TaskId> waits_for;  // tasks of other lanes that its lane has not waited for already
};
std::vector<std::vector<LaneEntry>> lane_order(const Plan& plan);

// One order of all tasks of a plan in which they could run.
std::vector<TaskId> one_order(const Plan& plan);

}  // namespace overtake
