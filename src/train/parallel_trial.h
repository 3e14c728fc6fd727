#pragma once
// A plan over several devices, tried out.

#include <cstdint>
#include <optional>

#include "train/parallel.h"

namespace overtake {

// Nanoseconds of a step, from so many real ones by all ranks at once, with weights and inputs of their own that go
// afterwards. None if a rank has no room for it under the memory cap.
std::optional<std::int64_t> time_plan(const UnfoldedPlan& whole, int steps, const ParallelSetting& setting);

}  // namespace overtake
