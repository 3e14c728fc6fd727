#pragma once
// Chooses how images lie in memory, and puts a reorder only where two neighbours disagree.

#include "passes/target.h"

namespace overtake {

// On the forward graph. Host inputs of four dimensions are channels-last, as the loader writes them.
Graph choose_layouts(Graph graph, const Target& target);

}  // namespace overtake
