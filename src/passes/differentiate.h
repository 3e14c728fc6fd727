#pragma once
// Appends the backward tasks: for each forward task, in reverse, its input_grad and weight_grad as separate tasks.

#include "overtake/graph.h"

namespace overtake {

// Needs a forward graph with a loss. Grants a gradient for every weight that a loss depends on. Where a value is used
// more than once, its gradients are added up in the reverse order of the uses in the graph, whatever the schedule.
Graph differentiate(Graph graph);

bool is_forward_only(const Graph& graph);
bool is_differentiated(const Graph& graph);

}  // namespace overtake
