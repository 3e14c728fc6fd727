// Mean squared error, of loss.h.

#include "kernels/cuda/group_reduce.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/loss.h"
#include "kernels/cuda/values.cuh"

namespace overtake::cuda {

namespace {

constexpr int kCombineThreads = 1024;  // the second phase is one block
constexpr int kThreads = 256;
constexpr int kWidth = 4, kSteps = 4;  // elements a thread moves at a time, and how often
constexpr int kTile = kThreads * kWidth * kSteps;

// Calls visit(at, differences [n]) for this thread's parts of x - target in the block's tile: n is kWidth in a whole
// tile, 1 in the last.
template <class T, class Visit>
__device__ void for_each_difference(const T* x, const float* target, std::int64_t count, const Visit& visit) {
  const std::int64_t tile = std::int64_t{blockIdx.x} * kTile;
  if (tile + kTile <= count) {
    const std::int64_t first = tile + threadIdx.x * kWidth;
    Packed<T, kWidth> held_x[kSteps];
    Packed<float, kWidth> held_target[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      held_x[s] = load_packed<kWidth>(x + first + s * (kThreads * kWidth));
      held_target[s] = load_packed<kWidth>(target + first + s * (kThreads * kWidth));
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      float values[kWidth], targets[kWidth];
      unpack(held_x[s], values);
      unpack(held_target[s], targets);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[i] -= targets[i];
      visit(first + s * (kThreads * kWidth), values);
    }
  } else {
    for (std::int64_t i = tile + threadIdx.x; i < count; i += kThreads) {
      float value[1];
      unpack(load_packed<1>(x + i), value);
      value[0] -= target[i];
      visit(i, value);
    }
  }
}

// partials: one per block.
template <class T>
__global__ void __launch_bounds__(kThreads)
    squared_error_kernel(const T* x, const float* target, std::int64_t count, double* partials) {
  float sum = 0;
  for_each_difference(x, target, count, [&]<int n>(std::int64_t, const float(&differences)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) sum += differences[i] * differences[i];
  });
  const double total = group_sum<kThreads>(static_cast<double>(sum));
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// One block: thread t adds partials t, t + 1024, ...
__global__ void __launch_bounds__(kCombineThreads)
    squared_error_combine_kernel(const double* partials, std::int64_t partial_count, double count, float rows,
                                 float* metrics) {
  double sum = 0;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x; i < partial_count; i += kCombineThreads) sum += partials[i];
  sum = group_sum<kCombineThreads>(sum);
  if (threadIdx.x > 0) return;
  metrics[0] = static_cast<float>(sum / count);
  metrics[1] = rows;
  metrics[2] = 0.0f;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    squared_error_grad_kernel(const T* x, const float* target, float factor, T* dx, std::int64_t count) {
  for_each_difference(x, target, count, [&]<int n>(std::int64_t at, float(&differences)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) differences[i] *= factor;
    store_values(dx + at, differences);
  });
}

std::int64_t error_tiles(std::int64_t count) { return (count + kTile - 1) / kTile; }

}  // namespace

std::size_t mean_squared_error_scratch_bytes(std::int64_t count) {
  return static_cast<std::size_t>(error_tiles(count)) * sizeof(double);
}

template <class T>
void mean_squared_error_forward(cudaStream_t stream, const T* x, const float* target, std::int64_t count,
                                std::int64_t rows, float* metrics, void* scratch) {
  constexpr const char* name = "mean_squared_error_forward";
  require_aligned(name, {x, target, scratch});
  auto* partials = static_cast<double*>(scratch);
  const std::int64_t tiles = error_tiles(count);
  squared_error_kernel<<<grid_blocks(name, tiles), kThreads, 0, stream>>>(x, target, count, partials);
  check_launch(name);
  squared_error_combine_kernel<<<1, kCombineThreads, 0, stream>>>(partials, tiles, static_cast<double>(count),
                                                                  static_cast<float>(rows), metrics);
  check_launch(name);
}

template <class T>
void mean_squared_error_input_grad(cudaStream_t stream, const T* x, const float* target, float scale, T* dx,
                                   std::int64_t count) {
  constexpr const char* name = "mean_squared_error_input_grad";
  require_aligned(name, {x, target, dx});
  const auto factor = static_cast<float>(2.0 * static_cast<double>(scale) / static_cast<double>(count));
  squared_error_grad_kernel<<<grid_blocks(name, error_tiles(count)), kThreads, 0, stream>>>(x, target, factor, dx,
                                                                                            count);
  check_launch(name);
}

template void mean_squared_error_forward(cudaStream_t, const float*, const float*, std::int64_t, std::int64_t, float*,
                                         void*);
template void mean_squared_error_forward(cudaStream_t, const bf16*, const float*, std::int64_t, std::int64_t, float*,
                                         void*);
template void mean_squared_error_input_grad(cudaStream_t, const float*, const float*, float, float*, std::int64_t);
template void mean_squared_error_input_grad(cudaStream_t, const bf16*, const float*, float, bf16*, std::int64_t);

}  // namespace overtake::cuda
