#pragma once
// Sixteen floats as one value, for loops whose sums must stay in registers.

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/bf16.h"

// Without 512-bit registers these types are split in two, and GCC warns that passing them would differ from a caller
// compiled for them. All of this is inlined into one file each.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace overtake::kernels {

inline constexpr std::int64_t kLanes = 16;

using Lanes [[gnu::vector_size(64)]] = float;
using IntLanes [[gnu::vector_size(64)]] = std::int32_t;
using ByteLanes [[gnu::vector_size(16)]] = std::uint8_t;

namespace lanes_detail {
using WordLanes [[gnu::vector_size(64)]] = std::uint32_t;
using HalfLanes [[gnu::vector_size(32)]] = std::uint16_t;
}  // namespace lanes_detail

inline Lanes load_lanes(const float* from) {
  Lanes value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

inline Lanes load_lanes(const bf16* from) {
  lanes_detail::HalfLanes half;
  std::memcpy(&half, from, sizeof(half));
  const lanes_detail::WordLanes word = __builtin_convertvector(half, lanes_detail::WordLanes) << 16;
  return std::bit_cast<Lanes>(word);
}

inline IntLanes load_lanes(const std::uint8_t* from) {
  ByteLanes value;
  std::memcpy(&value, from, sizeof(value));
  // Each step doubles the width; GCC 12 would take a fourfold step lane by lane.
  const auto half = __builtin_convertvector(value, lanes_detail::HalfLanes);
  return std::bit_cast<IntLanes>(__builtin_convertvector(half, lanes_detail::WordLanes));
}

inline void store_lanes(float* to, const Lanes& value) { std::memcpy(to, &value, sizeof(value)); }

// Rounds as from_float<bf16> does.
inline void store_lanes(bf16* to, const Lanes& value) {
  const auto word = std::bit_cast<lanes_detail::WordLanes>(value);
  const lanes_detail::WordLanes rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  const lanes_detail::WordLanes quiet_nan = (word >> 16) | 0x0040u;
  const lanes_detail::WordLanes bits = (word & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded;
  const lanes_detail::HalfLanes half = __builtin_convertvector(bits, lanes_detail::HalfLanes);
  std::memcpy(to, &half, sizeof(half));
}

// value must lie in 0..255.
inline void store_lanes(std::uint8_t* to, const IntLanes& value) {
  const auto word = std::bit_cast<lanes_detail::WordLanes>(value);
  const auto half = __builtin_convertvector(word, lanes_detail::HalfLanes);
  const auto bytes = __builtin_convertvector(half, ByteLanes);
  std::memcpy(to, &bytes, sizeof(bytes));
}

// The first `width` < 16 lanes; the others are zero.
template <class T>
inline auto load_lanes(const T* from, std::int64_t width) {
  T padded[kLanes]{};
  std::memcpy(padded, from, static_cast<std::size_t>(width) * sizeof(T));
  return load_lanes(padded);
}

// The first `width` < 16 lanes.
template <class T, class Value>
inline void store_lanes(T* to, const Value& value, std::int64_t width) {
  T padded[kLanes];
  store_lanes(padded, value);
  std::memcpy(to, padded, static_cast<std::size_t>(width) * sizeof(T));
}

// Reads and writes the whole of 16 channels, or the first `width` of them.
struct AllLanes {
  template <class T>
  auto load(const T* from) const {
    return load_lanes(from);
  }
  template <class T, class Value>
  void store(T* to, const Value& value) const {
    store_lanes(to, value);
  }
};
struct SomeLanes {
  std::int64_t width;
  template <class T>
  auto load(const T* from) const {
    return load_lanes(from, width);
  }
  template <class T, class Value>
  void store(T* to, const Value& value) const {
    store_lanes(to, value, width);
  }
};

// Calls body(first channel, access) for blocks of 16 channels; access is AllLanes, or SomeLanes for the rest.
template <class Body>
void for_each_channel_block(std::int64_t channels, const Body& body) {
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) body(c, AllLanes{});
  if (c < channels) body(c, SomeLanes{channels - c});
}

}  // namespace overtake::kernels
