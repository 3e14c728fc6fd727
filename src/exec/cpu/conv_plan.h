#pragma once
// How the CPU does a convolution task: one oneDNN primitive per part of the batch. Both the planner (layouts, scratch)
// and the binding ask here, so that they agree.

#include <optional>

#include "exec/cpu/binding.h"
#include "kernels/cpu/conv2d.h"

namespace overtake {

std::uint32_t conv_parts(const Graph& graph, const Task& task);

// The layout the task's kernel wants its weight, or weight gradient, in.
Layout conv_weight_layout(const Graph& graph, const Task& task);

}  // namespace overtake
