#pragma once
// From a model's forward graph to the graph of a whole training step.

#include <vector>

#include "overtake/target.h"
#include "passes/pass.h"
#include "passes/updates.h"

namespace overtake {

struct TrainingPassOptions {
  OptimizerSettings optimizer;
  bool bf16 = false;
  bool propagate_layouts = true;
  unsigned parts = 1;  // fixed pieces of every task; see Graph::parts
  // Passes of the user's own, on the differentiated graph with its updates.
  std::vector<Pass<Graph>> extra;
};

// The list of passes, in order, with reasons.
std::vector<Pass<Graph>> training_passes(const Target& target, const TrainingPassOptions& options);

Graph build_training_graph(Graph forward, const Target& target, const TrainingPassOptions& options, PassRunner& runner);

}  // namespace overtake
