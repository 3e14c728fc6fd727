#include "exec/lane_order.h"

#include <algorithm>
#include <utility>

namespace overtake {

LaneOrder lane_order(const Plan& plan, Portion portion) {
  const Dependencies deps = dependencies(plan);
  const HappensBefore order = happens_before(plan, deps);
  const auto runs = [&](TaskId t) { return is_in(portion, plan.graph.tasks[t]); };
  const auto is_transfer = [&](TaskId t) { return plan.lanes[order.lane_of[t]].is_asynchronous; };
  std::vector<TaskId> writer(plan.graph.buffers.size(), kNone);  // those on asynchronous lanes
  for (const Lane& lane : plan.lanes)
    for (const TaskId t : lane.is_asynchronous ? lane.tasks : std::vector<TaskId>{})
      for (const BufferId b : plan.graph.writes(t)) writer[b] = t;
  // The last of the first `count` tasks of a lane that runs. All that is certain in the whole plan must stay so when
  // some tasks are left out, for memory is shared on the strength of it.
  const auto last_of = [&](std::size_t lane, std::uint32_t count) {
    const auto& tasks = plan.lanes[lane].tasks;
    while (count > 0 && !runs(tasks[count - 1])) --count;
    return count == 0 ? kNone : tasks[count - 1];
  };
  LaneOrder lanes(plan.lanes.size());
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    std::vector<TaskId> waited(plan.lanes.size(), kNone);  // by lane: the last task that this lane has waited for
    TaskId joined = kNone;                                 // to the task before
    for (const TaskId t : plan.lanes[l].tasks) {
      if (!runs(t) || t == std::exchange(joined, plan.joined_to(t))) continue;
      LaneEntry entry{.task = t, .joined = joined, .is_delayed = plan.graph.tasks[t].is_delayed, .waits_for = {}};
      for (std::size_t other = 0; other < plan.lanes.size(); ++other) {
        const TaskId before = last_of(other, order.seen[std::size_t{t} * order.lanes + other]);
        if (other == l || plan.lanes[other].is_asynchronous || before == kNone || before == waited[other]) continue;
        waited[other] = before;
        entry.waits_for.push_back(before);
      }
      const std::vector<TaskId> all = entry.waits_for;
      std::erase_if(entry.waits_for, [&](TaskId before) {
        return std::ranges::any_of(all, [&](TaskId later) { return order.is_before(before, later); });
      });
      // One transfer's end says nothing of others', so each is waited for by whoever needs it.
      for (const TaskId both : {t, joined})
        for (const TaskId before : both == kNone ? std::span<const TaskId>{} : deps.of(both))
          if (order.lane_of[before] != kNone && is_transfer(before) && runs(before)) entry.waits_for.push_back(before);
      if (entry.is_delayed)
        for (const BufferId b : plan.graph.reads(t))
          if (b != kNone && writer[b] != kNone && !plan.graph.tasks[writer[b]].is_delayed)
            entry.waits_for_last.push_back(writer[b]);
      lanes[l].push_back(std::move(entry));
    }
  }
  return lanes;
}

std::vector<TaskId> one_order(const Plan& plan, Portion portion) {
  std::vector<TaskId> order = happens_before(plan, dependencies(plan)).topological;
  std::erase_if(order, [&](TaskId t) { return !is_in(portion, plan.graph.tasks[t]); });
  return order;
}

}  // namespace overtake
