#include "kernels/cuda/access.cuh"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/launch.h"

namespace overtake::cuda {

namespace {

using namespace access;

constexpr int kThreads = 256;  // eight blocks fill an SM
constexpr int kPacks = 2;      // per thread: the arithmetic of one hides the loads of the other

// The rounds of base/philox.h.
__device__ uint4 philox_words(PhiloxKey key, std::uint64_t counter_low, std::uint64_t counter_high) {
  auto c0 = static_cast<std::uint32_t>(counter_low), c1 = static_cast<std::uint32_t>(counter_low >> 32);
  auto c2 = static_cast<std::uint32_t>(counter_high), c3 = static_cast<std::uint32_t>(counter_high >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ key.low;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ key.high;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    key.low += 0x9E3779B9u;
    key.high += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

struct Drop {
  PhiloxKey key;
  std::uint64_t step;
  float p, scale;

  // values [4]: elements 4 counter to 4 counter + 3.
  __device__ void apply(std::int64_t counter, float* values) const {
    const uint4 words = philox_words(key, static_cast<std::uint64_t>(counter), step);
    const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float unit = static_cast<float>(word[i] >> 8) * 0x1p-24f;
      values[i] = unit >= p ? values[i] * scale : 0.0f;
    }
  }
};

// A block takes one tile: whole ones in packs, the last in groups of four, element by element.
template <class T>
__global__ void __launch_bounds__(kThreads) dropout_kernel(Drop drop, const T* x, T* y, std::int64_t count) {
  constexpr int width = kPackWidth<T>, step = kThreads * width;
  const std::int64_t tile = std::int64_t{blockIdx.x} * (step * kPacks);
  if (tile + step * kPacks <= count) {
    const std::int64_t first = tile + threadIdx.x * width;
    Pack<T, width> packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) packs[k] = load_pack<width>(x + first + k * step);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float values[width];
#pragma unroll
      for (int i = 0; i < width; ++i) values[i] = widen(packs[k].at[i]);
#pragma unroll
      for (int i = 0; i < width; i += 4) drop.apply((first + k * step + i) / 4, values + i);
#pragma unroll
      for (int i = 0; i < width; ++i) packs[k].at[i] = narrow<T>(values[i]);
      store_pack(y + first + k * step, packs[k]);
    }
  } else {
    for (std::int64_t i = tile + threadIdx.x * 4; i < count; i += kThreads * 4) {
      float values[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) values[k] = i + k < count ? widen(x[i + k]) : 0.0f;
      drop.apply(i / 4, values);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (i + k < count) y[i + k] = narrow<T>(values[k]);
      }
    }
  }
}

}  // namespace

template <class T>
void dropout(cudaStream_t stream, PhiloxKey key, std::uint64_t step, float p, const T* x, T* y, std::int64_t count) {
  if (count == 0) return;
  require_aligned("dropout", {x, y});
  const unsigned blocks = grid_blocks("dropout", parts(count, kThreads * kPacks * kPackWidth<T>));
  const Drop drop{key, step, p, 1.0f / (1.0f - p)};
  dropout_kernel<<<blocks, kThreads, 0, stream>>>(drop, x, y, count);
  check_launch("dropout");
}

template void dropout(cudaStream_t, PhiloxKey, std::uint64_t, float, const float*, float*, std::int64_t);
template void dropout(cudaStream_t, PhiloxKey, std::uint64_t, float, const bf16*, bf16*, std::int64_t);

}  // namespace overtake::cuda
