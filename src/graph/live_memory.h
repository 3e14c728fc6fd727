#pragma once
// How much memory a traced step has in use at each moment.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "overtake/plan.h"

namespace overtake {

// Roles in the groups that people ask about.
inline constexpr std::array<std::string_view, 4> kMemoryGroups = {"weights and states", "activations", "gradients",
                                                                  "other"};

struct MemorySample {
  std::int64_t at_ns = 0;                                  // from the start of the step; holds until the next sample
  std::array<std::int64_t, kMemoryGroups.size()> bytes{};  // per group
};
std::int64_t total_bytes(const MemorySample& sample);

// Per device, samples wherever the sum changes, the first at 0. A buffer is live from the begin of its writer to the
// end of its last reader in this trace; what lives across steps, inputs and outputs, always; what a delayed task reads,
// also to the end of this step and from the start of the next. Results on the bytes of an operand count once, and so do
// images inside another.
std::vector<std::vector<MemorySample>> live_memory(const Plan& plan, const Trace& trace);

}  // namespace overtake
