#pragma once
// One step on several devices at the same time, to measure what its tasks take while the other devices work.

#include <cstdint>

#include "overtake/plan.h"

namespace overtake {

// Every device does the whole step once, with memory of its own, and the beginning of it once more before or after: the
// device's place in the step is never that of another one while the first device does its whole step, and none idles
// then. The first device's whole step has the ids of `step`; the lanes are in the order of devices. Memory is not
// placed.
Plan side_by_side(const Graph& step, std::uint32_t devices);

}  // namespace overtake
