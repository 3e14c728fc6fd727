#include "kernels/cpu/nan.h"

#include <bit>

#include "kernels/cpu/block.h"

namespace overtake::kernels {

namespace {

// The exponent field; it is all ones, kNotFinite, for NaN and infinity only.
std::uint32_t exponent_of(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7f800000u; }
std::uint16_t exponent_of(bf16 x) { return x.bits & 0x7f80u; }

template <class T>
constexpr auto kNotFinite = sizeof(T) == 4 ? 0x7f800000u : 0x7f80u;

template <class T>
bool all_finite(const T* x, std::int64_t size) {
  decltype(exponent_of(T{})) largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < size; ++i) {
    const auto exponent = exponent_of(x[i]);
    largest = exponent > largest ? exponent : largest;
  }
  return largest != kNotFinite<T>;
}

}  // namespace

template <class T>
std::int64_t first_non_finite(const T* x, std::int64_t count, std::int64_t block_begin, std::int64_t block_end) {
  for (std::int64_t block = block_begin; block < block_end; ++block) {
    const std::int64_t first = block * kBlock, last = std::min(count, first + kBlock);
    if (all_finite(x + first, last - first)) continue;
    std::int64_t i = first;
    while (exponent_of(x[i]) != kNotFinite<T>) ++i;
    return i;
  }
  return -1;
}

template std::int64_t first_non_finite(const float*, std::int64_t, std::int64_t, std::int64_t);
template std::int64_t first_non_finite(const bf16*, std::int64_t, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
