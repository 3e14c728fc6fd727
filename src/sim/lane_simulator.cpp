#include "sim/lane_simulator.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace overtake {
namespace {

constexpr std::size_t kMostLanes = 8;

}  // namespace

void rates_of(std::span<const double> loads, std::span<double> rates) {
  double total = 0;
  for (const double load : loads) total += load;
  std::ranges::fill(rates, 1.0);
  if (total <= 1 || loads.size() == 1) return;
  // Tasks that need less than an even share keep their speed; the others share the rest.
  OVERTAKE_CHECK(loads.size() <= kMostTasks, "{} tasks side by side", loads.size());
  std::array<bool, kMostTasks> is_settled{};
  double left = 1;
  auto sharing = static_cast<double>(loads.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      if (is_settled[i] || loads[i] > left / sharing) continue;
      is_settled[i] = true;
      left -= loads[i];
      sharing -= 1;
      changed = sharing > 0;
      if (!changed) return;
    }
  }
  for (std::size_t i = 0; i < loads.size(); ++i)
    if (!is_settled[i]) rates[i] = left / sharing / loads[i];
}

void LaneSimulator::set_dependencies(const Dependencies& deps) {
  next_ = reversed(deps);
  waits_.resize(deps.first.size() - 1);
  for (TaskId t = 0; t < waits_.size(); ++t) waits_[t] = static_cast<std::uint32_t>(deps.of(t).size());
}

void LaneSimulator::finish(TaskId t, std::int64_t now) {
  end_[t] = now;
  for (const TaskId after : next_.of(t)) --waiting_[after];
}

bool LaneSimulator::start_tasks(const std::vector<std::vector<TaskId>>& lanes, const std::vector<TaskId>& holds,
                                std::int64_t now) {
  bool is_any_running = false;
  for (bool moved = true; moved;) {
    moved = is_any_running = false;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      while (running_[l].task == kNone && head_[l] < lanes[l].size()) {
        const TaskId t = lanes[l][head_[l]];
        const TaskId hold = holds.empty() ? kNone : holds[t];
        if (waiting_[t] > 0 || (hold != kNone && end_[hold] < 0)) break;
        begin_[t] = now;
        ++head_[l];
        if (profile_.alone_ns[t] > 0) {
          running_[l] = {t, static_cast<double>(profile_.alone_ns[t])};
        } else {
          finish(t, now);
          moved = true;
        }
      }
      is_any_running = is_any_running || running_[l].task != kNone;
    }
  }
  return is_any_running;
}

std::int64_t LaneSimulator::run(const std::vector<std::vector<TaskId>>& lanes, const std::vector<TaskId>& holds) {
  OVERTAKE_CHECK(lanes.size() <= kMostLanes, "{} lanes", lanes.size());
  waiting_ = waits_;
  begin_.assign(waits_.size(), -1);
  end_.assign(waits_.size(), -1);
  head_.assign(lanes.size(), 0);
  running_.assign(lanes.size(), {});
  std::size_t planned = 0;
  for (const auto& tasks : lanes) planned += tasks.size();
  if (planned < waits_.size()) {
    std::vector<char> is_planned(waits_.size(), 0);
    for (const auto& tasks : lanes)
      for (const TaskId t : tasks) is_planned[t] = 1;
    for (TaskId t = 0; t < waits_.size(); ++t)
      if (!is_planned[t]) finish(t, 0);
  }

  std::array<double, kMostLanes> loads{}, rates{};
  std::array<std::size_t, kMostLanes> lane{};
  std::int64_t now = 0;
  while (start_tasks(lanes, holds, now)) {
    std::size_t active = 0;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      if (running_[l].task == kNone) continue;
      loads[active] = profile_.load[running_[l].task];
      lane[active++] = l;
    }
    rates_of({loads.data(), active}, {rates.data(), active});
    double soonest = std::numeric_limits<double>::max();
    for (std::size_t i = 0; i < active; ++i) soonest = std::min(soonest, running_[lane[i]].left / rates[i]);
    const auto step = std::max<std::int64_t>(1, std::llround(std::ceil(soonest)));
    now += step;
    for (std::size_t i = 0; i < active; ++i) {
      Running& r = running_[lane[i]];
      r.left -= static_cast<double>(step) * rates[i];
      if (r.left > 0.5 * rates[i]) continue;
      finish(r.task, now);
      r.task = kNone;
    }
  }
  for (std::size_t l = 0; l < lanes.size(); ++l)
    if (head_[l] < lanes[l].size()) return kNever;
  return now;
}

Trace simulate(const Plan& plan, const Profile& profile) {
  LaneSimulator simulator(profile);
  simulator.set_dependencies(dependencies(plan));
  std::vector<std::vector<TaskId>> lanes;
  for (const Lane& lane : plan.lanes) lanes.push_back(lane.tasks);
  Trace trace;
  trace.step_ns = simulator.run(lanes);
  OVERTAKE_CHECK(trace.step_ns != LaneSimulator::kNever, "a lane of plan {} waits for ever", plan.schedule);
  for (std::uint32_t l = 0; l < lanes.size(); ++l)
    for (const TaskId t : lanes[l]) trace.spans.push_back({t, l, simulator.begins()[t], simulator.ends()[t]});
  return trace;
}

}  // namespace overtake
