#pragma once
// Neighbouring elements moved by one memory access of up to 16 bytes, kept as they lie in memory until their values are
// used: the form that takes the fewest registers while loads are on their way. For .cu files only.

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/bf16.h"

namespace overtake::cuda {

// Elements of a 16-byte access.
template <class T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

// What one access of so many bytes moves.
template <std::size_t bytes>
struct MemoryWord;
template <>
struct MemoryWord<2> {
  using type = unsigned short;
};
template <>
struct MemoryWord<4> {
  using type = unsigned;
};
template <>
struct MemoryWord<8> {
  using type = uint2;
};
template <>
struct MemoryWord<16> {
  using type = uint4;
};

// V elements of T as they lie in memory.
template <class T, int V>
struct Packed {
  using Word = typename MemoryWord<sizeof(T) * V>::type;
  Word word;
};

// from: V elements, aligned to their common size.
template <int V, class T>
__device__ inline Packed<T, V> load_packed(const T* from) {
  return {*reinterpret_cast<const typename Packed<T, V>::Word*>(from)};
}

template <class T, int V>
__device__ inline void unpack(const Packed<T, V>& packed, float (&values)[V]) {
  if constexpr (sizeof(T) * V == 2) {
    values[0] = __uint_as_float(static_cast<unsigned>(packed.word) << 16);
  } else {
    unsigned words[sizeof(T) * V / 4];
    __builtin_memcpy(words, &packed.word, sizeof(words));
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (sizeof(T) == 4) {
        values[i] = __uint_as_float(words[i]);
      } else {
        values[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
      }
    }
  }
}

// Rounds to nearest, ties to even. to: aligned as for load_packed.
template <int V, class T>
__device__ inline void store_values(T* to, const float (&values)[V]) {
  typename Packed<T, V>::Word word;
  if constexpr (sizeof(T) * V == 2) {
    word = __bfloat16_as_ushort(__float2bfloat16_rn(values[0]));
  } else {
    unsigned words[sizeof(T) * V / 4];
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)) * V / 4; ++i) {
      if constexpr (sizeof(T) == 4) {
        words[i] = __float_as_uint(values[i]);
      } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
        __builtin_memcpy(&words[i], &pair, sizeof(pair));
      }
    }
    __builtin_memcpy(&word, words, sizeof(words));
  }
  *reinterpret_cast<typename Packed<T, V>::Word*>(to) = word;
}

// Per-column floats that no kernel in flight writes; from: V floats, 16-byte aligned unless V is 1.
template <int V>
__device__ inline void load_columns(const float* from, float (&values)[V]) {
  if constexpr (V == 1) {
    values[0] = __ldg(from);
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(from + i));
      values[i] = four.x;
      values[i + 1] = four.y;
      values[i + 2] = four.z;
      values[i + 3] = four.w;
    }
  }
}

// The way back; to: as from above.
template <int V>
__device__ inline void store_columns(float* to, const float (&values)[V]) {
  if constexpr (V == 1) {
    *to = values[0];
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      *reinterpret_cast<float4*>(to + i) = float4{values[i], values[i + 1], values[i + 2], values[i + 3]};
    }
  }
}

template <int V>
__device__ inline void fill(float (&values)[V], float value) {
#pragma unroll
  for (int i = 0; i < V; ++i) values[i] = value;
}

// Calls body(integral_constant<int, V>) with V the widest access that `width` is a multiple of: 16 bytes or one
// element.
template <class T, class Body>
void with_vector_width(std::int64_t width, const Body& body) {
  if (width % kVector<T> == 0) {
    body(std::integral_constant<int, kVector<T>>{});
  } else {
    body(std::integral_constant<int, 1>{});
  }
}

}  // namespace overtake::cuda
