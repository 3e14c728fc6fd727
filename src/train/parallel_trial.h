#pragma once
// A plan over several devices, tried out.

#include <cstdint>
#include <optional>

#include "train/parallel.h"

namespace overtake {

struct TimedPlan {
  std::int64_t step_ns = 0;
  Plan placed;  // this process's part
};

// From so many real steps by all ranks at once, with weights and inputs of their own that go afterwards. None if a rank
// has no room for it under the memory cap.
std::optional<TimedPlan> time_plan(const Detail& whole, int steps, const ParallelSetting& setting);

}  // namespace overtake
