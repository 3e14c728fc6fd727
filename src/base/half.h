#pragma once
// IEEE half precision, as files have it.

#include <bit>
#include <cstdint>

namespace overtake {

inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);  // infinite or no number
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float value = static_cast<float>(fraction) * 0x1p-24f;  // zero or subnormal
  return sign != 0 ? -value : value;
}

}  // namespace overtake
