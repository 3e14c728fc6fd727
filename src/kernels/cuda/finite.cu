#include "kernels/cuda/finite.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/values.cuh"

namespace overtake::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // per thread, all on their way at once

template <class T, int V>
__device__ bool is_finite(const Packed<T, V>& pack) {
  float values[V];
  unpack(pack, values);
  bool all = true;
#pragma unroll
  for (int i = 0; i < V; ++i) all &= isfinite(values[i]);
  return all;
}

// A block looks at one tile: whole ones in packs; the last, and all where there are gaps, element by element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    mark_non_finite_kernel(const T* x, std::int64_t count, std::uint32_t* flag, FiniteRows rows) {
  constexpr int V = kVector<T>, step = kThreads * V;
  const std::int64_t tile = std::int64_t{blockIdx.x} * (step * kPacks);
  bool all = true;
  if (rows.pitch == 0 && tile + step * kPacks <= count) {
    const T* from = x + tile + threadIdx.x * V;
    Packed<T, V> packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) packs[k] = load_packed<V>(from + k * step);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) all &= is_finite(packs[k]);
  } else {
    const std::int64_t end = min(count, tile + step * kPacks);
    for (std::int64_t i = tile + threadIdx.x; i < end; i += kThreads) {
      const std::int64_t at = rows.pitch == 0 ? i : i / rows.width * rows.pitch + i % rows.width;
      all &= is_finite(load_packed<1>(x + at));
    }
  }
  if (!all) *flag = 1;  // by whoever finds one: all store the same
}

}  // namespace

template <class T>
void mark_non_finite(cudaStream_t stream, const T* x, std::int64_t count, std::uint32_t* flag, const FiniteRows& rows) {
  constexpr const char* name = "mark_non_finite";
  constexpr std::int64_t tile = kThreads * kPacks * kVector<T>;
  if (count == 0) return;
  require_aligned(name, {x});
  mark_non_finite_kernel<<<grid_blocks(name, (count + tile - 1) / tile), kThreads, 0, stream>>>(x, count, flag, rows);
  check_launch(name);
}

template void mark_non_finite(cudaStream_t, const float*, std::int64_t, std::uint32_t*, const FiniteRows&);
template void mark_non_finite(cudaStream_t, const bf16*, std::int64_t, std::uint32_t*, const FiniteRows&);

}  // namespace overtake::cuda
