#pragma once

#include <string_view>

namespace overtake {

// "0.1.0"
std::string_view version();

}  // namespace overtake
