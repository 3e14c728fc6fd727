#pragma once
// From a graph to a plan: which lane runs which task, in which order.

#include <cstddef>
#include <limits>
#include <vector>

#include "cost/profile.h"
#include "graph/plan.h"

namespace overtake {

// One lane, tasks as they stand in the graph: the order of frameworks.
Plan schedule_in_order(Graph graph);

// Weight gradients and updates that nothing but updates waits for: these may run at any later time.
std::vector<char> deferrable_tasks(const Graph& graph, const Dependencies& deps);

struct OutOfOrderOptions {
  // How many ready tasks may wait for the side lane before the main lane does one itself; each keeps its operands in
  // memory.
  std::size_t max_waiting = std::numeric_limits<std::size_t>::max();
};

// Two lanes. The main lane runs the critical path; the side lane takes deferrable tasks by list scheduling on the
// measured times, and the main lane helps with them once its own work is done.
Plan schedule_out_of_order(Graph graph, const Profile& profile, const OutOfOrderOptions& options = {});

// The forward tasks alone, for evaluation: norms use their running statistics, dropout does nothing. Buffers, layouts
// and the places of everything that lives across steps are those of the training graph.
Plan schedule_forward(Graph graph);

}  // namespace overtake
