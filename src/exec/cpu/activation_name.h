#pragma once

#include <string_view>

#include "kernels/cpu/activation.h"

namespace overtake {

// The kernel's name of a function named in a task's attributes.
kernels::Activation activation_from_name(std::string_view name);

}  // namespace overtake
