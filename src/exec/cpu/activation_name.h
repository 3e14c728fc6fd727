#pragma once

#include <string_view>

#include "graph/types.h"
#include "kernels/cpu/activation.h"

namespace overtake {

// The kernel's name of a function named in a task's attributes.
kernels::Activation activation_from_name(std::string_view name);
// The same with its parameters.
kernels::ActivationFunction activation_function(const Attrs& attrs);

}  // namespace overtake
