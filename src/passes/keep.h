#pragma once
// Keeps chosen buffers alive until the step's end, so that the host can read them.

#include <functional>
#include <string>
#include <vector>

#include "passes/pass.h"

namespace overtake {

// Chosen by name ("conv1.weight.grad"). They get the role output and, with it, bytes of their own.
Pass<Graph> keep_buffers(std::function<bool(const std::string& name)> is_wanted);
// The gradients of all weights.
Pass<Graph> keep_gradients();
// The tensor that goes by this name in a step: "<weight>.grad" is the whole gradient of a weight, whatever it is called
// there; all else is called as it is. kNone: no task writes one.
BufferId find_readable(const Graph& graph, const std::string& name);
// Each of these names; what lives across steps can be read anyway. A user error if there is no such tensor.
Pass<Graph> keep_readable(std::vector<std::string> names);

}  // namespace overtake
