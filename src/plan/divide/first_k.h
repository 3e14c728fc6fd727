#pragma once
// Reverse first-k: some weight gradients come after all input gradients, so that what the next forward needs first is
// sent first, and the device has work while it is.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "overtake/pipeline_schedule.h"

namespace overtake {

FirstK first_k_from_string(std::string_view text);  // "12" or "12@30": the twelve after the first thirty
std::string to_string(FirstK first_k);

// All blocks of the largest chunk.
std::uint32_t most_first_k(const PipelineLayout& layout);

// Throughput over k and over where they begin is close to a hill: a grid up to `most` blocks first, then ever closer
// around its best. `is_best` tries one, each at most once and k = 0 first, and says whether it is better than all
// before.
void search_first_k(std::uint32_t most, const std::function<bool(FirstK)>& is_best);

}  // namespace overtake
