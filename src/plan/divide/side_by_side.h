#pragma once
// One step on several devices at the same time, to measure what its tasks take while the other devices work.

#include <cstdint>

#include "overtake/plan.h"

namespace overtake {

// Each device runs the step at a different offset, so that none idles while device 0 is measured. The first device's
// whole step has the ids of `step`; the lanes are in the order of devices. Memory is not placed.
Plan side_by_side(const Graph& step, std::uint32_t devices);

}  // namespace overtake
