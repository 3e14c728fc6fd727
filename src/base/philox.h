#pragma once
// Philox 4x32-10: random numbers that are a pure function of (key, counter), so no order of tasks can change them.

#include <array>
#include <cstdint>

namespace overtake {

struct PhiloxKey {
  std::uint32_t low, high;
};

// Four independent 32-bit words for one 128-bit counter.
constexpr std::array<std::uint32_t, 4> philox(PhiloxKey key, std::uint64_t counter_low, std::uint64_t counter_high) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_low), c1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_high), c3 = static_cast<std::uint32_t>(counter_high >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    const auto n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ key.low;
    const auto n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ key.high;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    key.low += 0x9E3779B9u;
    key.high += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// Uniform in [0, 1) with 24 random bits.
constexpr float unit_float(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace overtake
