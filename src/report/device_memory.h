#pragma once
// How much memory each device needs for a step.

#include <array>
#include <cstdint>
#include <vector>

#include "graph/live_memory.h"

namespace overtake {

struct MemoryPeak {
  std::int64_t bytes = 0;
  std::array<std::int64_t, kMemoryGroups.size()> groups{};  // at that moment
};

// Per device of the plan, the moment at which it needs most.
std::vector<MemoryPeak> memory_peaks(const Plan& plan, const Trace& trace);

}  // namespace overtake
