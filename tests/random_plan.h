#pragma once
// Random legal plans: a random topological order, each task dealt to a random lane.

#include <algorithm>
#include <random>

#include "graph/plan.h"

namespace overtake {

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
