#pragma once
// Stores each weight the way its gradient comes out, and gives tasks that want another format a reordered copy, made
// once per step and shared.

#include "passes/target.h"

namespace overtake {

// On a differentiated graph, before updates are added (so that optimizer states follow the weight's layout).
Graph store_weights(Graph graph, const Target& target);
// On the whole graph: adds the reorders.
Graph pack_weights(Graph graph, const Target& target);
// Adds the scratch memory that the target's kernels want as a last written buffer of their task.
Graph add_scratch(Graph graph, const Target& target);

}  // namespace overtake
