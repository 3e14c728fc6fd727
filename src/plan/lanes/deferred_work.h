#pragma once
// What of a step may be put off, and how far: the terms in which out-of-order schedules think.

#include <cstdint>
#include <vector>

#include "overtake/plan.h"

namespace overtake {

// Places count critical tasks: a task at place p comes after the first p of them.
class DeferredWork {
 public:
  explicit DeferredWork(const Graph& graph);

  const std::vector<TaskId>& critical() const { return critical_; }  // in graph order
  const std::vector<TaskId>& deferred() const { return deferred_; }  // in graph order
  bool is_deferred(TaskId t) const { return is_deferred_[t]; }

  // The first place at which a deferred task can start, if all deferred tasks before it do so too.
  std::uint32_t ready(TaskId t) const { return ready_[t]; }
  // The last place of the next step at which a delayed task must have ended; 0 if it cannot be delayed.
  std::uint32_t deadline(TaskId t) const { return deadline_[t]; }
  // Deferred tasks that read what this one writes, directly or not, and the other way round; in graph order.
  const std::vector<TaskId>& followers(TaskId t) const { return followers_[t]; }
  const std::vector<TaskId>& leaders(TaskId t) const { return leaders_[t]; }

 private:
  void find_ready(const Dependencies& deps);
  void find_deadlines(const Graph& graph);

  std::vector<TaskId> critical_, deferred_;
  std::vector<char> is_deferred_;
  std::vector<std::uint32_t> place_of_;  // of critical tasks
  std::vector<std::uint32_t> ready_, deadline_;
  std::vector<std::vector<TaskId>> followers_, leaders_;
};

}  // namespace overtake
