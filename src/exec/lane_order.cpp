#include "exec/lane_order.h"

#include <algorithm>
#include <utility>

namespace overtake {
namespace {

class Waits {
 public:
  Waits(const Plan& plan, Portion portion)
      : plan_(plan), portion_(portion), deps_(dependencies(plan)), order_(happens_before(plan, deps_)) {
    sender_.assign(plan.graph.buffers.size(), kNone);
    for (const Lane& lane : plan.lanes)
      if (lane.is_asynchronous)
        for (const TaskId t : lane.tasks)
          for (const BufferId b : plan.graph.writes(t)) sender_[b] = t;
  }

  std::vector<LaneEntry> of_lane(std::size_t lane) const {
    std::vector<LaneEntry> entries;
    std::vector<std::uint32_t> waited(plan_.lanes.size(), 0);  // by lane: how many of its tasks this one has waited for
    TaskId joined = kNone;                                     // to the task before
    for (const TaskId t : plan_.lanes[lane].tasks) {
      if (!runs(t) || t == std::exchange(joined, plan_.joined_to(t))) continue;
      if (plan_.lanes[lane].is_asynchronous) std::ranges::fill(waited, 0);  // nor does it wait with those before it
      entries.push_back({.task = t,
                         .joined = joined,
                         .is_delayed = plan_.graph.tasks[t].is_delayed,
                         .waits_for = waits_of(lane, t, joined, waited),
                         .waits_for_last = waits_for_last(t)});
    }
    return entries;
  }

 private:
  bool runs(TaskId t) const { return is_in(portion_, plan_.graph.tasks[t]); }

  // All that is certain in the whole plan must stay so when some tasks are left out, for memory is shared on the
  // strength of it.
  std::vector<TaskId> waits_of(std::size_t lane, TaskId t, TaskId joined, std::vector<std::uint32_t>& waited) const {
    std::vector<TaskId> direct;  // of what both read and write
    for (const TaskId both : {t, joined})
      for (const TaskId before : both == kNone ? std::span<const TaskId>{} : deps_.of(both))
        if (order_.lane_of[before] != kNone && runs(before)) direct.push_back(before);
    const auto is_implied = [&](TaskId before) {
      return std::ranges::any_of(direct, [&](TaskId later) { return order_.is_before(before, later); });
    };
    std::vector<TaskId> all;
    for (std::size_t other = 0; other < plan_.lanes.size(); ++other) {
      const Lane& before = plan_.lanes[other];
      if (other == lane && !before.is_asynchronous) continue;
      const std::uint32_t first = waited[other], seen = order_.seen[std::size_t{t} * order_.lanes + other];
      for (std::uint32_t i = seen; i > first; --i) {
        const TaskId last = before.tasks[i - 1];
        if (!runs(last) || (before.is_asynchronous && is_implied(last))) continue;
        all.push_back(last);
        if (!before.is_asynchronous) break;  // those before it have ended with it
      }
      waited[other] = std::max(first, seen);
    }
    // Of asynchronous lanes, `seen` counts only tasks that all before them have ended with.
    for (const TaskId before : direct)
      if (plan_.lanes[order_.lane_of[before]].is_asynchronous && std::ranges::find(all, before) == all.end())
        all.push_back(before);
    std::vector<TaskId> waits = all;
    std::erase_if(waits, [&](TaskId before) {
      return std::ranges::any_of(all, [&](TaskId later) { return order_.is_before(before, later); });
    });
    return waits;
  }

  std::vector<TaskId> waits_for_last(TaskId t) const {
    std::vector<TaskId> waits;
    if (!plan_.graph.tasks[t].is_delayed) return waits;
    for (const BufferId b : plan_.graph.reads(t))
      if (b != kNone && sender_[b] != kNone && !plan_.graph.tasks[sender_[b]].is_delayed) waits.push_back(sender_[b]);
    return waits;
  }

  const Plan& plan_;
  Portion portion_;
  Dependencies deps_;
  HappensBefore order_;
  std::vector<TaskId> sender_;  // per buffer: the transfer that writes it
};

// With each transfer after the one whose turn comes before its own.
Dependencies with_turns(const Plan& plan, Dependencies deps) {
  std::vector<std::pair<std::int64_t, TaskId>> turns;
  for (const Lane& lane : plan.lanes)
    for (const TaskId t : lane.tasks)
      if (plan.graph.tasks[t].op == Op::transfer && plan.graph.attrs_of(plan.graph.tasks[t]).has("turn"))
        turns.emplace_back(plan.graph.attrs_of(plan.graph.tasks[t]).integer("turn"), t);
  if (turns.empty()) return deps;
  std::ranges::sort(turns);
  std::vector<std::pair<TaskId, TaskId>> edges;
  for (std::size_t i = 1; i < turns.size(); ++i) edges.emplace_back(turns[i].second, turns[i - 1].second);
  for (TaskId t = 0; t < plan.graph.tasks.size(); ++t)
    for (const TaskId before : deps.of(t)) edges.emplace_back(t, before);
  return dependencies_from(std::move(edges), plan.graph.tasks.size());
}

}  // namespace

LaneOrder lane_order(const Plan& plan, Portion portion) {
  const Waits waits(plan, portion);
  LaneOrder lanes;
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) lanes.push_back(waits.of_lane(l));
  return lanes;
}

std::vector<TaskId> one_order(const Plan& plan, Portion portion) {
  std::vector<TaskId> order = happens_before(plan, with_turns(plan, dependencies(plan))).topological;
  std::erase_if(order, [&](TaskId t) { return !is_in(portion, plan.graph.tasks[t]); });
  return order;
}

}  // namespace overtake
