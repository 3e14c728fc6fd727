#pragma once
// TPUs among the machines that come with Overtake (presets.cpp).

#include <string_view>

namespace overtake {

std::string_view tpu_v4_text();
std::string_view tpu_v5p_text();

}  // namespace overtake
