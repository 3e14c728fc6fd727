#pragma once
// What elementwise and moving kernels need: conversions, vector accesses and division by constants of the launch. For
// .cu files only.

#include <cuda_bf16.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "base/bf16.h"

namespace overtake::cuda::access {

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
template <class T>
__device__ inline T narrow(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  }
}

// n neighbouring elements, moved by one access of n * sizeof(T) in {1, 2, 4, 8, 16} bytes.
template <class T, int n>
struct Pack {
  T at[n];
};

template <std::size_t bytes>
using AccessWord = std::conditional_t<
    bytes == 16, uint4,
    std::conditional_t<
        bytes == 8, uint2,
        std::conditional_t<bytes == 4, std::uint32_t, std::conditional_t<bytes == 2, std::uint16_t, std::uint8_t>>>>;

template <int n, class T>
__device__ inline Pack<T, n> load_pack(const T* from) {
  return std::bit_cast<Pack<T, n>>(*reinterpret_cast<const AccessWord<sizeof(T) * n>*>(from));
}

template <int n, class T>
__device__ inline void store_pack(T* to, const Pack<T, n>& pack) {
  *reinterpret_cast<AccessWord<sizeof(T) * n>*>(to) = std::bit_cast<AccessWord<sizeof(T) * n>>(pack);
}

// Elements of T in 16 bytes, the widest access.
template <class T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

// n / divisor for n < 2^31 by a multiplication: divisions of the hardware cost more than the rest of an index.
struct Divisor {
  std::uint32_t divisor, multiplier, shift;

  Divisor() = default;
  explicit Divisor(std::uint32_t d) : divisor(d), shift(static_cast<std::uint32_t>(std::bit_width(d - 1u))) {
    multiplier = static_cast<std::uint32_t>(((1ull << 32) * ((1ull << shift) - d)) / d + 1);
  }

  struct Result {
    std::uint32_t quotient, remainder;
  };
  __device__ Result divide(std::uint32_t n) const {
    const std::uint32_t quotient = (__umulhi(n, multiplier) + n) >> shift;
    return {quotient, n - quotient * divisor};
  }
};

// For promises between the files of this folder. (base/error.h formats with fmt, which nvcc does not compile.)
inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

constexpr std::int64_t parts(std::int64_t count, std::int64_t part) { return (count + part - 1) / part; }

}  // namespace overtake::cuda::access
