#pragma once
// Stages into chunks, chunks onto devices.

#include <cstdint>
#include <span>
#include <vector>

#include "plan/pipeline/schedule.h"

namespace overtake {

// The first stage of each of `parts` chunks, and the number of stages at the end, so that the slowest chunk is as fast
// as can be (forward and both gradients together); of such cuts, the most even one.
std::vector<std::uint32_t> cut_blocks(std::span<const BlockCosts> stages, std::uint32_t parts);

// Chunk c on device c mod devices, v per device.
PipelineLayout interleaved_layout(const PipelineProblem& problem, std::uint32_t v);
// One chunk per device.
inline PipelineLayout contiguous_layout(const PipelineProblem& problem) { return interleaved_layout(problem, 1); }
// Two chunks per device: down and up again, so that the first device also has the last chunk.
PipelineLayout v_layout(const PipelineProblem& problem);
// The group of stages s / group on device (s / group) mod devices.
PipelineLayout modulo_layout(const PipelineProblem& problem, std::uint32_t group);
// Two routes in opposite directions over one chunk per device; every second micro-batch takes the way back.
PipelineLayout two_way_layout(const PipelineProblem& problem);

// Every way to give single stages to devices, which are all alike; none if there are more than `most`.
std::vector<PipelineLayout> all_layouts(const PipelineProblem& problem, std::size_t most);

}  // namespace overtake
