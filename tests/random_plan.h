#pragma once
// Random legal plans: a random topological order, each task dealt to a random lane.

#include <algorithm>
#include <numeric>
#include <random>

#include "graph/place.h"
#include "overtake/plan.h"

namespace overtake {

inline constexpr std::uint64_t kSeed = 3;

// Delays some of the tasks that may be: they touch neither inputs nor results nor images inside others, and all that
// comes after them in the step is delayed too.
inline void delay_at_random(Graph& graph, std::mt19937& random) {
  const Dependencies next = reversed(dependencies(graph));
  const auto touches = [&](std::span<const BufferId> operands, Role role) {
    return std::ranges::any_of(operands, [&](BufferId b) { return b != kNone && graph.buffers[b].role == role; });
  };
  const std::vector<char> is_shared = shared_images(graph);
  const auto reads_shared = [&](TaskId t) {
    return std::ranges::any_of(graph.reads(t), [&](BufferId b) { return b != kNone && is_shared[b]; });
  };
  const auto one_in = 1 + random() % 3;
  std::vector<TaskId> last_first(graph.tasks.size());
  std::iota(last_first.rbegin(), last_first.rend(), TaskId{0});
  for (bool changed = true; changed;) {
    changed = false;
    for (const TaskId t : last_first) {
      Task& task = graph.tasks[t];
      if (task.is_delayed || reads_shared(t) || touches(graph.reads(t), Role::input) ||
          touches(graph.writes(t), Role::output) ||
          !std::ranges::all_of(next.of(t), [&](TaskId after) { return graph.tasks[after].is_delayed; }) ||
          random() % one_in != 0)
        continue;
      task.is_delayed = changed = true;
    }
  }
}

inline Plan random_plan(const Graph& graph, std::size_t lanes, std::mt19937& random) {
  const Dependencies deps = dependencies(graph), next = reversed(deps);
  // Either any ready task is as likely as another, or the one with the highest rank runs: ranks drawn beforehand hold
  // some tasks back for very long.
  const bool is_even = random() % 2 == 0;
  std::vector<std::uint64_t> rank(graph.tasks.size());
  for (std::uint64_t& r : rank) r = random();
  std::vector<std::size_t> waiting(graph.tasks.size());
  std::vector<TaskId> ready;
  for (TaskId t = 0; t < graph.tasks.size(); ++t)
    if ((waiting[t] = deps.of(t).size()) == 0) ready.push_back(t);
  Plan plan;
  plan.graph = graph;
  plan.schedule = "random";
  plan.lanes.resize(lanes);
  while (!ready.empty()) {
    const auto first = std::ranges::max_element(ready, {}, [&](TaskId t) { return rank[t]; });
    std::swap(is_even ? ready[random() % ready.size()] : *first, ready.back());
    const TaskId t = ready.back();
    ready.pop_back();
    plan.lanes[random() % lanes].tasks.push_back(t);
    for (const TaskId after : next.of(t))
      if (--waiting[after] == 0) ready.push_back(after);
  }
  return plan;
}

}  // namespace overtake
