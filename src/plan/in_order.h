#pragma once
// From a graph to a plan: which lane runs which task, in which order.

#include <vector>

#include "overtake/plan.h"

namespace overtake {

// One lane, tasks as they stand in the graph: the order of frameworks.
Plan schedule_in_order(Graph graph);

// Weight gradients and updates that nothing but updates waits for: these may run at any later time.
std::vector<char> deferrable_tasks(const Graph& graph, const Dependencies& deps);

// The forward tasks alone, for evaluation: norms use their running statistics, dropout does nothing. Buffers, layouts
// and the places of everything that lives across steps are those of the training graph.
Plan schedule_forward(Graph graph);

}  // namespace overtake
