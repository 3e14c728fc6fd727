#include "kernels/cpu/dropout.h"

#include "kernels/cpu/block.h"

namespace overtake::kernels {

namespace {

constexpr std::size_t kLanes = 64;  // counters computed side by side
static_assert(kBlock % (4 * kLanes) == 0);

// words[4 l + w] = philox(key, counter + l, step)[w] for each lane l: the rounds of base/philox.h, with the lanes as
// the inner loop so that they fill vectors.
void philox_lanes(PhiloxKey key, std::uint64_t counter, std::uint64_t step, std::uint32_t* words) {
#pragma omp simd
  for (std::size_t l = 0; l < kLanes; ++l) {
    std::uint64_t c0 = counter + l, c1 = (counter + l) >> 32, c2 = step, c3 = step >> 32;
    std::uint64_t k0 = key.low, k1 = key.high;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = 0xD2511F53ull * (c0 & 0xffffffffu);
      const std::uint64_t p1 = 0xCD9E8D57ull * (c2 & 0xffffffffu);
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c1 = p1;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    words[4 * l] = static_cast<std::uint32_t>(c0);
    words[4 * l + 1] = static_cast<std::uint32_t>(c1);
    words[4 * l + 2] = static_cast<std::uint32_t>(c2);
    words[4 * l + 3] = static_cast<std::uint32_t>(c3);
  }
}

template <class T>
void drop(const std::uint32_t* words, float p, float scale, const T* x, T* y, std::int64_t size) {
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) {
    y[i] = from_float<T>(unit_float(words[i]) >= p ? to_float(x[i]) * scale : 0.0f);
  }
}

}  // namespace

template <class T>
void dropout(PhiloxKey key, std::uint64_t step, float p, const T* x, T* y, std::int64_t count, std::int64_t block_begin,
             std::int64_t block_end) {
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    std::uint32_t words[kBlock];  // one per element; the last block makes a few too many
    for (std::size_t group = 0; group < kBlock / 4 / kLanes; ++group) {
      philox_lanes(key, static_cast<std::uint64_t>(first) / 4 + group * kLanes, step, words + group * 4 * kLanes);
    }
    drop(words, p, 1.0f / (1.0f - p), x + first, y + first, size);
  });
}

template void dropout(PhiloxKey, std::uint64_t, float, const float*, float*, std::int64_t, std::int64_t, std::int64_t);
template void dropout(PhiloxKey, std::uint64_t, float, const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
