#pragma once
// Trees of activations, adds and muls become one task each, so that what is between never goes through memory.

#include "overtake/graph.h"

namespace overtake {

// On the forward graph, after everything that knows such tasks by name. Where nobody else reads what is between, all
// of it has the shape of the result, and what is broadcast is a constant, or a weight that is used as direct_use()
// says; and where forward and backward together move fewer bytes. In float32 results keep their bits.
Graph fuse_elementwise(Graph graph);

}  // namespace overtake
