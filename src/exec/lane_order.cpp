#include "exec/lane_order.h"

namespace overtake {

std::vector<std::vector<LaneEntry>> lane_order(const Plan& plan) {
  const Dependencies deps = dependencies(plan.graph);
  const HappensBefore order = happens_before(plan, deps);
  std::vector<std::vector<LaneEntry>> lanes(plan.lanes.size());
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    const auto& list = plan.lanes[l].tasks;
    for (std::size_t i = 0; i < list.size(); ++i) {
      LaneEntry entry{.task = list[i], .waits_for = {}};
      for (const TaskId before : deps.of(list[i])) {
        // What the task before on this lane has waited for already need not be waited for again.
        const bool is_seen = i > 0 && order.lane_of[before] != kNone && order.is_before(before, list[i - 1]);
        if (order.lane_of[before] != kNone && order.lane_of[before] != l && !is_seen) entry.waits_for.push_back(before);
      }
      lanes[l].push_back(std::move(entry));
    }
  }
  return lanes;
}

std::vector<TaskId> one_order(const Plan& plan) { return happens_before(plan, dependencies(plan.graph)).topological; }

}  // namespace overtake
