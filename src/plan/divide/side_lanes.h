#pragma once
// A second lane on every device of a divided step: weight gradients run there, beside the forwards and input gradients
// that other devices wait for, and fill what these leave of the device. The order across devices stays as it was, so
// whatever goes to the side, a step that ended before ends still.

#include <cstdint>
#include <functional>

#include "overtake/program.h"
#include "plan/divide/outline.h"

namespace overtake {

// Moves the outline's tasks to side lanes, each in the order it had. What is sent no longer waits for them, unless it
// is made of what they make.
void put_aside(Outline& outline, const SideWork& side);

// Every weight gradient that a device computes.
SideWork all_weight_gradients(const Outline& outline);

// Of a step with side lanes and its trace: waits of first lanes for side lanes that have ended there long since. What
// a side lane has read is then certain to be dead, and its memory can be used again.
std::vector<Wait> waits_for_memory(const Outline& outline, const Trace& trace);

struct SideSearchOptions {
  bool must = false;        // even where nothing on the side is faster
  std::uint64_t tries = 0;  // how many arrangements are judged at most
};
// What to put aside, the same in all replicas: all or nothing of a device, of a micro-batch there, of a block there,
// changed one after the other as long as the step gets shorter. `step_ns` judges; kUnfit is for what has no room.
// Nothing, if nothing is better.
inline constexpr std::int64_t kUnfit = INT64_MAX;
SideWork search_side_work(const Outline& outline, const std::function<std::int64_t(const SideWork&)>& step_ns,
                          const SideSearchOptions& options);

}  // namespace overtake
