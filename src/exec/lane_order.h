#pragma once
// The order of a plan as executors keep it: each lane's tasks, and what each waits for on other lanes.

#include <cstdint>
#include <vector>

#include "overtake/plan.h"

namespace overtake {

struct LaneEntry {
  TaskId task = 0;
  TaskId joined = kNone;  // runs as one with it
  bool is_delayed = false;
  // Tasks that its lane has not waited for already: of other lanes, or of its own if that is asynchronous.
  std::vector<TaskId> waits_for;
  std::vector<TaskId> waits_for_last = {};  // transfers of the step before, of a delayed task: they may still go on
};

// Which tasks of a plan run together. A step after another also does what that one delayed; a first step has nothing of
// the kind to do, and after a last step only that is left.
enum class Portion : std::uint8_t { step_and_delayed, step, delayed };
inline bool is_in(Portion portion, const Task& task) {
  return portion == Portion::step_and_delayed || (portion == Portion::delayed) == task.is_delayed;
}

using LaneOrder = std::vector<std::vector<LaneEntry>>;
LaneOrder lane_order(const Plan& plan, Portion portion = Portion::step_and_delayed);

// One order of the tasks of a plan in which they could run; with transfers in the order of their turns, if they have
// any (plan/divide/transfer_turns.h).
std::vector<TaskId> one_order(const Plan& plan, Portion portion = Portion::step_and_delayed);

}  // namespace overtake
