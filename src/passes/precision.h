#pragma once
// Computes in bfloat16: activations and their gradients are bfloat16; weights, their gradients, statistics, optimizer
// states and losses stay float32.

#include "overtake/graph.h"

namespace overtake {

// On the forward graph. Host inputs of floats are cast once; weights used by ops without weights of their own as well.
Graph use_bf16(Graph graph);

}  // namespace overtake
