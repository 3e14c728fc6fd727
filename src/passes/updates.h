#pragma once
// Appends the update of every trained weight, and the clipping of the global gradient norm before it.

#include <string>

#include "graph/graph.h"

namespace overtake {

struct OptimizerSettings {
  enum class Kind : std::uint8_t { sgd, adamw };
  Kind kind = Kind::sgd;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double clip_norm = 0;  // 0: no clipping
};

Graph add_updates(Graph graph, const OptimizerSettings& settings);
bool has_updates(const Graph& graph);

}  // namespace overtake
