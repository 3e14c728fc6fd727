#include "plan/divide/side_lanes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"

namespace overtake {
namespace {

constexpr double kLongSince = 0.02;  // of the step

// Of a block, or of a tied weight from all its uses.
bool is_weight_gradient(const Outline& outline, TaskId t) {
  const Task& task = outline.plan.graph.tasks[t];
  return task.op == Op::block && task.kind == Kind::weight_grad;
}

std::vector<char> flags(const SideWork& side, std::size_t tasks) {
  std::vector<char> is_aside(tasks, 0);
  for (const TaskId t : side.tasks) {
    OVERTAKE_CHECK(t < tasks, "task {} of {} is to be put aside", t, tasks);
    is_aside[t] = 1;
  }
  for (const Wait& w : side.waits)
    OVERTAKE_CHECK(std::max(w.before, w.after) < tasks, "a side lane's wait for task {} of {}",
                   std::max(w.before, w.after), tasks);
  return is_aside;
}

// Weight gradients that go to the side together.
using Unit = std::vector<TaskId>;

// The same pieces of all replicas: of each device of a pipeline, then of each of its micro-batches, then of its blocks.
std::vector<Unit> units_of(const Outline& outline) {
  const std::uint32_t local = outline.devices / outline.replicas;
  enum Level : std::uint8_t { device, micro_batch, block };
  std::map<std::tuple<Level, std::uint32_t, std::uint32_t>, Unit> units;
  for (const TaskId t : all_weight_gradients(outline).tasks) {
    const Task& task = outline.plan.graph.tasks[t];
    const std::uint32_t of = task.device % local;
    units[{device, of, 0}].push_back(t);
    units[{micro_batch, of, task.micro_batch}].push_back(t);
    units[{block, of, outline.task_of[t]}].push_back(t);
  }
  std::vector<Unit> all;
  for (auto& [key, unit] : units)
    if (std::ranges::find(all, unit) == all.end()) all.push_back(std::move(unit));
  return all;
}

SideWork with(const SideWork& side, const Unit& unit) {
  SideWork out;
  std::ranges::set_union(side.tasks, unit, std::back_inserter(out.tasks));
  return out;
}
SideWork without(const SideWork& side, const Unit& unit) {
  SideWork out;
  std::ranges::set_difference(side.tasks, unit, std::back_inserter(out.tasks));
  return out;
}

}  // namespace

void put_aside(Outline& outline, const SideWork& side) {
  if (side == SideWork{}) return;
  Plan& plan = outline.plan;
  const std::vector<char> is_aside = flags(side, plan.graph.tasks.size());
  std::vector<Lane> first, aside, transfers;
  std::size_t found = 0;
  for (Lane& lane : plan.lanes) {
    if (lane.is_asynchronous) {
      transfers.push_back(std::move(lane));
      continue;
    }
    Lane main{lane.device, {}}, other{lane.device, {}};
    for (const TaskId t : lane.tasks) {
      OVERTAKE_CHECK(!is_aside[t] || is_weight_gradient(outline, t), "{} cannot be put aside", plan.graph.task_name(t));
      (is_aside[t] ? other : main).tasks.push_back(t);
    }
    found += other.tasks.size();
    first.push_back(std::move(main));
    if (!other.tasks.empty()) aside.push_back(std::move(other));
  }
  OVERTAKE_CHECK(found == side.tasks.size(), "{} of {} tasks to be put aside are computed", found, side.tasks.size());
  // Lanes that compute come before those that do not.
  plan.lanes = std::move(first);
  std::ranges::move(aside, std::back_inserter(plan.lanes));
  std::ranges::move(transfers, std::back_inserter(plan.lanes));
  std::erase_if(plan.waits, [&](const Wait& w) { return is_aside[w.before] != 0; });
  plan.waits.insert(plan.waits.end(), side.waits.begin(), side.waits.end());
  std::ranges::sort(plan.waits);
}

SideWork all_weight_gradients(const Outline& outline) {
  SideWork all;
  for (const Lane& lane : outline.plan.lanes)
    for (const TaskId t : lane.tasks)
      if (is_weight_gradient(outline, t)) all.tasks.push_back(t);
  std::ranges::sort(all.tasks);
  return all;
}

std::vector<Wait> waits_for_memory(const Outline& outline, const Trace& trace) {
  const Plan& plan = outline.plan;
  std::vector<std::int64_t> begin(plan.graph.tasks.size(), 0), end(plan.graph.tasks.size(), 0);
  for (const Span& s : trace.spans) {
    if (s.task >= begin.size()) continue;  // what the machine adds to a step comes after the outline's own tasks
    begin[s.task] = s.begin_ns;
    end[s.task] = s.end_ns;
  }
  const auto margin =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(kLongSince * static_cast<double>(trace.step_ns)));
  std::vector<Wait> waits;
  std::map<std::uint16_t, const Lane*> first_lane;
  for (const Lane& lane : plan.lanes) {
    if (lane.is_asynchronous) continue;
    const auto [known, is_first] = first_lane.try_emplace(lane.device, &lane);
    if (is_first) continue;
    const std::vector<TaskId>& main = known->second->tasks;
    std::size_t next = 0;
    for (const TaskId t : lane.tasks) {
      while (next < main.size() && begin[main[next]] < end[t] + margin) ++next;
      if (next == main.size()) break;
      // A task that waits already has waited for all before on the side lane.
      if (!waits.empty() && waits.back().after == main[next]) waits.pop_back();
      waits.push_back({t, main[next]});
    }
  }
  std::ranges::sort(waits);
  return waits;
}

SideWork search_side_work(const Outline& outline, const std::function<std::int64_t(const SideWork&)>& step_ns,
                          const SideSearchOptions& options) {
  std::uint64_t tries = 0;
  SideWork best;
  std::int64_t best_ns = kUnfit;
  const auto consider = [&](SideWork side) {
    if (side.tasks.empty() && options.must) return;
    ++tries;
    const std::int64_t ns = step_ns(side);
    if (ns >= best_ns) return;
    best_ns = ns;
    best = std::move(side);
  };
  consider({});
  consider(all_weight_gradients(outline));
  const std::vector<Unit> units = units_of(outline);
  // Again from the start as long as something of the last round was better.
  bool is_better = true;
  while (is_better && tries < options.tries) {
    const std::int64_t before = best_ns;
    for (const Unit& unit : units) {
      const SideWork more = with(best, unit), less = without(best, unit);
      if (more.tasks != best.tasks && tries < options.tries) consider(more);
      if (less.tasks != best.tasks && tries < options.tries) consider(less);
    }
    is_better = best_ns < before;
  }
  // Where nothing has room, that is said of all of them.
  return options.must && best.tasks.empty() ? all_weight_gradients(outline) : best;
}

}  // namespace overtake
