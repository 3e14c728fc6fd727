#pragma once

#include "overtake/target.h"

namespace overtake {

// Joins neighbours of the backward that belong to different layers, where the target's kernels can:
// - the derivative of a function into the input gradient of the linear layer above it;
// - the sum of two gradients into the backward of the batch norm with residual below it, or into the input gradient of
//   the batch norm above it;
// in all cases where nobody else reads what is between.
Graph fuse_gradients(Graph graph, const Target& target);

}  // namespace overtake
