#pragma once
// Lanes of one device on a model of time: measured times of tasks, and loads that say how tasks slow each other down.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "machine/profile.h"
#include "overtake/plan.h"

namespace overtake {

inline constexpr std::size_t kMostTasks = 32;  // side by side

// How fast each of the tasks that run side by side goes, 1 being what it does alone: the device is shared evenly, and
// what a task cannot use goes to the others.
void rates_of(std::span<const double> loads, std::span<double> rates);

class LaneSimulator {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  // Keeps references. The profile is of the same tasks.
  explicit LaneSimulator(const Profile& profile) : profile_(profile) {}

  // What waits for what from here on.
  void set_dependencies(const Dependencies& deps);

  // One step of the given lanes, in nanoseconds; kNever if a lane would wait for ever. `holds` has a task per task that
  // must have ended before it starts, or kNone. Tasks on no lane count as done.
  std::int64_t run(const std::vector<std::vector<TaskId>>& lanes, const std::vector<TaskId>& holds = {});
  // When each task of the last run began and ended.
  const std::vector<std::int64_t>& begins() const { return begin_; }
  const std::vector<std::int64_t>& ends() const { return end_; }

 private:
  struct Running {
    TaskId task = kNone;
    double left = 0;  // nanoseconds at full speed
  };

  bool start_tasks(const std::vector<std::vector<TaskId>>& lanes, const std::vector<TaskId>& holds, std::int64_t now);
  void finish(TaskId t, std::int64_t now);

  const Profile& profile_;
  Dependencies next_;
  std::vector<std::uint32_t> waits_, waiting_;  // per task: how many before it, and how many of them have not ended
  std::vector<std::int64_t> begin_, end_;       // per task; -1: not yet
  std::vector<std::size_t> head_;               // per lane
  std::vector<Running> running_;                // per lane
};

// The same contract as executors': a plan in, a trace of its step out.
Trace simulate(const Plan& plan, const Profile& profile);

}  // namespace overtake
