#pragma once
// Stages into chunks, chunks onto devices.

#include <cstdint>
#include <vector>

#include "plan/pipeline/schedule.h"

namespace overtake {

// The first stage of each chunk, and the number of stages at the end, so that the slowest chunk is as fast as can be on
// its own device (forward and both gradients together); of such cuts, the most even one. `device_of` is a layout's:
// [route][chunk]; a chunk that several routes have on different devices takes the sum of its times there.
std::vector<std::uint32_t> cut_blocks(const PipelineProblem& problem,
                                      const std::vector<std::vector<std::uint32_t>>& device_of);

// Chunk c on device c mod devices, v per device.
PipelineLayout interleaved_layout(const PipelineProblem& problem, std::uint32_t v);
// One chunk per device.
inline PipelineLayout contiguous_layout(const PipelineProblem& problem) { return interleaved_layout(problem, 1); }
// Two chunks per device: down and up again, so that the first device also has the last chunk.
PipelineLayout v_layout(const PipelineProblem& problem);
// Groups of neighbouring stages, dealt out in turn: group g on device g mod devices. Where devices differ in speed,
// each group goes to the device that would be the first to be done with all of its groups.
PipelineLayout modulo_layout(const PipelineProblem& problem, std::uint32_t group);
// Two routes in opposite directions over one chunk per device; every second micro-batch takes the way back.
PipelineLayout two_way_layout(const PipelineProblem& problem);

// One chunk per device, cut so that the fullest device has the least of its memory cap in use by weights and one
// micro-batch. For problems with caps.
PipelineLayout layout_by_memory(const PipelineProblem& problem);

// Every way to give single stages to devices, of which those that are alike may change places; none if there are more
// than `most`.
std::vector<PipelineLayout> all_layouts(const PipelineProblem& problem, std::size_t most);

}  // namespace overtake
