#pragma once

#include <cstdint>

#include "plan/divide/outline.h"

namespace overtake::tests {

inline PipelineProblem problem_of(const BlockGraph& blocks, std::uint32_t devices, std::uint32_t micro_batches) {
  return {.devices = devices, .micro_batches = micro_batches, .blocks = block_costs(blocks), .memory_cap = {}};
}

}  // namespace overtake::tests
