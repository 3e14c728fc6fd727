#pragma once
// Chooses how images lie in memory, and puts a reorder only where two neighbours disagree.

#include "overtake/target.h"

namespace overtake {

// On the forward graph. Host inputs of four dimensions are channels-last, as the loader writes them. Without
// propagation every result goes back to row-major at once, as if each layer stood alone: for measuring what
// propagation brings.
Graph choose_layouts(Graph graph, const Target& target, bool propagate = true);

}  // namespace overtake
