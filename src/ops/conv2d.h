#pragma once
// What the operands of a convolution task are, whichever of its three kinds it is.

#include "overtake/graph.h"

namespace overtake {

struct ConvOperands {
  const Buffer *x, *y, *weight;  // weight: null where the bias alone is trained
  bool bias;
};
ConvOperands conv_operands(const Graph& graph, const Task& task);

// Whether every channel has a filter of its own and reads no other channel.
bool is_depthwise(const Graph& graph, const Task& task);

}  // namespace overtake
