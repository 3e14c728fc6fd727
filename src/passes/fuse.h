#pragma once
// Joins neighbours of the forward graph that one kernel can do in one read and one write.

#include "graph/graph.h"

namespace overtake {

// batch_norm + relu, batch_norm + add + relu, batch_norm + add, and, where asked for, linear + activation; only where
// nobody else reads what is between. Before differentiation, so that the backward is fused by the op's own rule.
Graph fuse(Graph graph, bool fuse_linear = true);

}  // namespace overtake
