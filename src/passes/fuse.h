#pragma once
// Joins neighbours of the forward graph that one kernel can do in one read and one write.

#include <functional>
#include <string_view>

#include "ops/op.h"
#include "overtake/graph.h"

namespace overtake {

// Which functions norms and linear layers take in; norms with an add take relu alone.
struct FusedFunctions {
  std::function<bool(std::string_view)> linear = linear_takes;
  std::function<bool(std::string_view)> batch_norm = [](std::string_view function) { return function == "relu"; };
};

// batch_norm + function, batch_norm + add + relu, batch_norm + add, linear + activation, where nobody else reads what
// is between; and add + layer_norm, whose sum others may read. Before differentiation, so that the backward is fused by
// the op's own rule.
Graph fuse(Graph graph, const FusedFunctions& functions = {});

}  // namespace overtake
