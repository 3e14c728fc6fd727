#include "plan/lanes/deferred_work.h"

#include <algorithm>

#include "graph/place.h"
#include "plan/in_order.h"

namespace overtake {

DeferredWork::DeferredWork(const Graph& graph) {
  const Dependencies deps = dependencies(graph);
  is_deferred_ = deferrable_tasks(graph, deps);
  place_of_.assign(graph.tasks.size(), 0);
  ready_.assign(graph.tasks.size(), 0);
  deadline_.assign(graph.tasks.size(), 0);
  followers_.resize(graph.tasks.size());
  leaders_.resize(graph.tasks.size());
  for (TaskId t = 0; t < graph.tasks.size(); ++t) {
    if (!is_deferred_[t]) place_of_[t] = static_cast<std::uint32_t>(critical_.size());
    (is_deferred_[t] ? deferred_ : critical_).push_back(t);
  }
  find_ready(deps);
  find_deadlines(graph);
}

void DeferredWork::find_ready(const Dependencies& deps) {
  for (const TaskId t : deferred_)
    for (const TaskId before : deps.of(t)) {
      if (!is_deferred_[before]) {
        ready_[t] = std::max(ready_[t], place_of_[before] + 1);
        continue;
      }
      ready_[t] = std::max(ready_[t], ready_[before]);
      leaders_[t].push_back(before);
      leaders_[t].insert(leaders_[t].end(), leaders_[before].begin(), leaders_[before].end());
    }
  for (const TaskId t : deferred_) {
    std::ranges::sort(leaders_[t]);
    leaders_[t].erase(std::unique(leaders_[t].begin(), leaders_[t].end()), leaders_[t].end());
    for (const TaskId before : leaders_[t]) followers_[before].push_back(t);
  }
}

void DeferredWork::find_deadlines(const Graph& graph) {
  // With everything delayed, what still waits for a task says when it must be done.
  Graph late = graph;
  for (const TaskId t : deferred_) late.tasks[t].is_delayed = true;
  const Dependencies next = reversed(dependencies(late));
  std::vector<char> is_changed(graph.buffers.size(), 0);
  for (const TaskId t : critical_)
    for (const BufferId b : graph.writes(t))
      if (b != kNone) is_changed[b] = is_persistent(graph.buffers[b].role);
  const std::vector<char> is_shared = shared_images(graph);
  const auto is_gone = [&](BufferId b) { return b != kNone && (is_changed[b] || is_shared[b]); };
  const auto touches = [&](std::span<const BufferId> operands, Role role) {
    return std::ranges::any_of(operands, [&](BufferId b) { return b != kNone && graph.buffers[b].role == role; });
  };
  for (auto it = deferred_.rbegin(); it != deferred_.rend(); ++it) {
    const TaskId t = *it;
    auto deadline = static_cast<std::uint32_t>(critical_.size());
    for (const TaskId after : next.of(t))
      deadline = std::min(deadline, is_deferred_[after] ? deadline_[after] : place_of_[after]);
    const bool is_bound = touches(graph.reads(t), Role::input) || touches(graph.writes(t), Role::output) ||
                          std::ranges::any_of(graph.reads(t), is_gone);
    deadline_[t] = is_bound ? 0 : deadline;
  }
}

}  // namespace overtake
