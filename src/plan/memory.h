#pragma once
// Static offsets for every buffer of a plan: the peak is known before anything runs.

#include <cstdint>
#include <optional>

#include "overtake/plan.h"

namespace overtake {

inline constexpr std::uint64_t kAlignment = 256;  // what the pickiest of the libraries wants

// Weights and states first, then what the host writes and reads, then the rest, each of which lives from its first
// write to its last use in the order the lanes guarantee. Results are put on their operand's bytes where the op allows
// it and nobody needs the operand any more. A user error if the whole is over the cap.
Plan place_memory(Plan plan, std::optional<std::uint64_t> cap = {});
// Every buffer on bytes of its own, for running tasks in any order and at any time: only views lie on what they show.
Plan place_memory_apart(Plan plan);
bool has_memory(const Plan& plan);

}  // namespace overtake
