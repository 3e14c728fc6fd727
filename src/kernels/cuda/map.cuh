#pragma once
// Elementwise maps of contiguous arrays at the speed of memory. For .cu files only.

#include <algorithm>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/launch.h"

namespace overtake::cuda::access {

// 256 threads: eight blocks fill an SM, and the last of few blocks is not long. Four accesses of 16 bytes per thread
// and array are in flight, which at full occupancy is more than the memory's latency times its bandwidth.
inline constexpr int kMapThreads = 256;
inline constexpr int kMapPacks = 4;

// Elements of an access where several types go together: as many as of the widest.
template <class... T>
inline constexpr int kCommonWidth = std::min({kPackWidth<T>...});

// A block maps one tile. Whole tiles are moved in packs; the last one, if not whole, element by element. All loads of a
// thread come before its stores, and an element is read by the thread that writes it: in place is fine.
template <class F, class In, class Out>
__global__ void __launch_bounds__(kMapThreads, 4) map_kernel(F f, const In* in, Out* out, std::int64_t count) {
  constexpr int width = kCommonWidth<In, Out>, step = kMapThreads * width;
  const std::int64_t tile = std::int64_t{blockIdx.x} * (step * kMapPacks);
  if (tile + step * kMapPacks <= count) {
    const std::int64_t first = tile + threadIdx.x * width;
    Pack<In, width> x[kMapPacks];
#pragma unroll
    for (int k = 0; k < kMapPacks; ++k) x[k] = load_pack<width>(in + first + k * step);
#pragma unroll
    for (int k = 0; k < kMapPacks; ++k) {
      Pack<Out, width> y;
#pragma unroll
      for (int i = 0; i < width; ++i) y.at[i] = narrow<Out>(f(widen(x[k].at[i])));
      store_pack(out + first + k * step, y);
    }
  } else {
    const std::int64_t end = min(count, tile + step * kMapPacks);
    for (std::int64_t i = tile + threadIdx.x; i < end; i += kMapThreads) out[i] = narrow<Out>(f(widen(in[i])));
  }
}

// The same with two arrays in.
template <class F, class A, class B, class Out>
__global__ void __launch_bounds__(kMapThreads, 4)
    map2_kernel(F f, const A* a, const B* b, Out* out, std::int64_t count) {
  constexpr int width = kCommonWidth<A, B, Out>, step = kMapThreads * width;
  const std::int64_t tile = std::int64_t{blockIdx.x} * (step * kMapPacks);
  if (tile + step * kMapPacks <= count) {
    const std::int64_t first = tile + threadIdx.x * width;
    Pack<A, width> x[kMapPacks];
    Pack<B, width> y[kMapPacks];
#pragma unroll
    for (int k = 0; k < kMapPacks; ++k) {
      x[k] = load_pack<width>(a + first + k * step);
      y[k] = load_pack<width>(b + first + k * step);
    }
#pragma unroll
    for (int k = 0; k < kMapPacks; ++k) {
      Pack<Out, width> z;
#pragma unroll
      for (int i = 0; i < width; ++i) z.at[i] = narrow<Out>(f(widen(x[k].at[i]), widen(y[k].at[i])));
      store_pack(out + first + k * step, z);
    }
  } else {
    const std::int64_t end = min(count, tile + step * kMapPacks);
    for (std::int64_t i = tile + threadIdx.x; i < end; i += kMapThreads) {
      out[i] = narrow<Out>(f(widen(a[i]), widen(b[i])));
    }
  }
}

// out [count] = f(in [count]); f is a function object on floats that can be called on the device.
template <class F, class In, class Out>
void map(cudaStream_t stream, const char* name, F f, const In* in, Out* out, std::int64_t count) {
  if (count == 0) return;
  require_aligned(name, {in, out});
  const unsigned blocks = grid_blocks(name, parts(count, kMapThreads * kMapPacks * kCommonWidth<In, Out>));
  map_kernel<<<blocks, kMapThreads, 0, stream>>>(f, in, out, count);
  check_launch(name);
}

// out [count] = f(a [count], b [count]).
template <class F, class A, class B, class Out>
void map2(cudaStream_t stream, const char* name, F f, const A* a, const B* b, Out* out, std::int64_t count) {
  if (count == 0) return;
  require_aligned(name, {a, b, out});
  const unsigned blocks = grid_blocks(name, parts(count, kMapThreads * kMapPacks * kCommonWidth<A, B, Out>));
  map2_kernel<<<blocks, kMapThreads, 0, stream>>>(f, a, b, out, count);
  check_launch(name);
}

}  // namespace overtake::cuda::access
