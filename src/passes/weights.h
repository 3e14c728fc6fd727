#pragma once
// Stores each weight the way its gradient comes out, and gives tasks that want another format a reordered copy, made
// once per step and shared.

#include "overtake/target.h"

namespace overtake {

// On a differentiated graph, before updates are added (so that optimizer states follow the weight's layout).
Graph store_weights(Graph graph, const Target& target);
// On the whole graph: adds the reorders, or the copies that updates write where the target has them.
Graph pack_weights(Graph graph, const Target& target);
// Joins neighbouring updates of equal settings into tasks of at most so many elements of weights (one weight may have
// more): one launch for many small tensors.
Graph group_updates(Graph graph, std::int64_t most_elements);
// Adds the scratch memory that the target's kernels want as a last written buffer of their task.
Graph add_scratch(Graph graph, const Target& target);
void add_scratch(Graph& graph, TaskId task, const Target& target);

}  // namespace overtake
