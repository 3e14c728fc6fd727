#pragma once
// Appends the update of every trained weight, and the clipping of the global gradient norm before it.

#include "overtake/graph.h"
#include "overtake/optimizer_settings.h"

namespace overtake {

Graph add_updates(Graph graph, const OptimizerSettings& settings);
bool has_updates(const Graph& graph);

}  // namespace overtake
