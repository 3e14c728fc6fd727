#include "kernels/cuda/dropout.h"

#include "base/philox.h"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/launch.h"

namespace overtake::cuda {

namespace {

using namespace access;

constexpr int kThreads = 256;  // eight blocks fill an SM
constexpr int kPacks = 2;      // per thread: the arithmetic of one hides the loads of the other

struct Drop {
  PhiloxKey key;
  std::uint64_t step;
  float p, scale;

  __device__ Drop(const StepValues* values, std::uint32_t salt, float probability)
      : key{static_cast<std::uint32_t>(values->seed),
            static_cast<std::uint32_t>(values->seed >> 32) ^ (salt * 0x9E3779B9u)},
        step(values->step),
        p(probability),
        scale(1.0f / (1.0f - probability)) {}

  // x [4]: elements 4 counter to 4 counter + 3.
  __device__ void apply(std::int64_t counter, float* x) const {
    const std::array<std::uint32_t, 4> words = philox(key, static_cast<std::uint64_t>(counter), step);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = unit_float(words[i]) >= p ? x[i] * scale : 0.0f;
  }
};

// A block takes one tile: whole ones in packs, the last in groups of four, element by element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const StepValues* values, std::uint32_t salt, float p, const T* x, T* y, std::int64_t count) {
  constexpr int width = kPackWidth<T>, step = kThreads * width;
  const Drop drop(values, salt, p);
  const std::int64_t tile = std::int64_t{blockIdx.x} * (step * kPacks);
  if (tile + step * kPacks <= count) {
    const std::int64_t first = tile + threadIdx.x * width;
    Pack<T, width> packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) packs[k] = load_pack<width>(x + first + k * step);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float wide[width];
#pragma unroll
      for (int i = 0; i < width; ++i) wide[i] = widen(packs[k].at[i]);
#pragma unroll
      for (int i = 0; i < width; i += 4) drop.apply((first + k * step + i) / 4, wide + i);
#pragma unroll
      for (int i = 0; i < width; ++i) packs[k].at[i] = narrow<T>(wide[i]);
      store_pack(y + first + k * step, packs[k]);
    }
  } else {
    for (std::int64_t i = tile + threadIdx.x * 4; i < count; i += kThreads * 4) {
      float wide[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) wide[k] = i + k < count ? widen(x[i + k]) : 0.0f;
      drop.apply(i / 4, wide);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (i + k < count) y[i + k] = narrow<T>(wide[k]);
      }
    }
  }
}

}  // namespace

template <class T>
void dropout(cudaStream_t stream, const StepValues* values, std::uint32_t salt, float p, const T* x, T* y,
             std::int64_t count) {
  if (count == 0) return;
  require_aligned("dropout", {x, y});
  const unsigned blocks = grid_blocks("dropout", parts(count, kThreads * kPacks * kPackWidth<T>));
  dropout_kernel<<<blocks, kThreads, 0, stream>>>(values, salt, p, x, y, count);
  check_launch("dropout");
}

template void dropout(cudaStream_t, const StepValues*, std::uint32_t, float, const float*, float*, std::int64_t);
template void dropout(cudaStream_t, const StepValues*, std::uint32_t, float, const bf16*, bf16*, std::int64_t);

}  // namespace overtake::cuda
