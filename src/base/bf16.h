#pragma once
// bfloat16: the upper half of a float32. Arithmetic is always done in float32.

#include <bit>
#include <cstdint>

namespace overtake {

struct bf16 {
  std::uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
template <class T>
inline T from_float(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else {
    const auto u = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (u >> 16) | 0x0040u;
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    return bf16{static_cast<std::uint16_t>(is_nan ? quiet_nan : rounded)};
  }
}

}  // namespace overtake
