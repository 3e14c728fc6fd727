#pragma once
// Keeps chosen buffers alive until the step's end, so that the host can read them.

#include <functional>
#include <string>

#include "passes/pass.h"

namespace overtake {

// Chosen by name ("conv1.weight.grad"). They get the role output and, with it, bytes of their own.
Pass<Graph> keep_buffers(std::function<bool(const std::string& name)> is_wanted);
// The gradients of all weights.
Pass<Graph> keep_gradients();

}  // namespace overtake
