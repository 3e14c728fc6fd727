#include <algorithm>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/launch.h"

namespace overtake::cuda {

namespace {

using namespace access;

constexpr int kThreads = 256;   // eight blocks fill an SM
constexpr int kRun = 64;        // neighbours in `positions` that one thread adds up
constexpr int kAhead = 8;       // rows whose loads are in flight at a time
constexpr int kRunLanes = 128;  // packs of columns of a block: rows are rarely shorter

// Thread: a pack of a row of y.
template <int width, class W, class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const std::int32_t* tokens, const W* table, T* y, std::int64_t vocabulary, Divisor packs_per_row,
                   std::int64_t packs, std::int64_t columns, unsigned long long* first_bad) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= packs) return;
  const auto [position, pack] = packs_per_row.divide(static_cast<std::uint32_t>(index));
  const std::int32_t token = tokens[position];
  Pack<T, width> out;
  if (token >= 0 && token < vocabulary) {
    const Pack<W, width> in = load_pack<width>(table + token * columns + std::int64_t{pack} * width);
#pragma unroll
    for (int i = 0; i < width; ++i) out.at[i] = narrow<T>(widen(in.at[i]));
  } else {
#pragma unroll
    for (int i = 0; i < width; ++i) out.at[i] = narrow<T>(0.0f);
    // The smallest of integers does not depend on the order; -1 is the largest unsigned one.
    if (pack == 0) atomicMin(first_bad, static_cast<unsigned long long>(position));
  }
  store_pack(y + index * width, out);
}

// The token of place `place` < offsets[vocabulary]: the last v with offsets[v] <= place.
__device__ std::int32_t token_at(const std::int32_t* offsets, std::int32_t vocabulary, std::int32_t place) {
  std::int32_t low = 0, high = vocabulary;  // offsets[low] <= place < offsets[high]
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    (offsets[middle] <= place ? low : high) = middle;
  }
  return low;
}

// Where the sum of a run goes: the row itself if the token's list lies inside one run; else a partial sum, the second
// of its run if the list begins in it, the first if it began before. partials: [runs][2][columns].
__device__ float* destination(const std::int32_t* offsets, std::int32_t token, std::int32_t run, float* dtable,
                              float* partials, std::int64_t columns) {
  const std::int32_t begin = offsets[token], end = offsets[token + 1];
  if (begin / kRun == (end - 1) / kRun) return dtable + token * columns;
  return partials + (std::int64_t{run} * 2 + (begin / kRun == run ? 1 : 0)) * columns;
}

// Block: a run of neighbours in `positions`, and a tile of columns.
template <int width, class T>
__global__ void __launch_bounds__(kRunLanes)
    runs_kernel(const std::int32_t* offsets, const std::int32_t* positions, const T* dy, float* dtable, float* partials,
                std::int32_t vocabulary, std::int64_t columns) {
  __shared__ std::int32_t tokens[kRun], rows[kRun];
  const auto run = static_cast<std::int32_t>(blockIdx.x);
  const int count = min(kRun, offsets[vocabulary] - run * kRun);  // below 1 where only bad ids are left
  for (int i = threadIdx.x; i < count; i += kRunLanes) {
    tokens[i] = token_at(offsets, vocabulary, run * kRun + i);
    rows[i] = positions[run * kRun + i];
  }
  __syncthreads();
  const std::int64_t column = (std::int64_t{blockIdx.y} * kRunLanes + threadIdx.x) * width;
  if (column >= columns) return;

  float sum[width] = {};
  for (int first = 0; first < count; first += kAhead) {
    Pack<T, width> ahead[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (first + k < count) ahead[k] = load_pack<width>(dy + rows[first + k] * columns + column);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int at = first + k;
      if (at >= count) break;
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += widen(ahead[k].at[i]);
      if (at + 1 < count && tokens[at + 1] == tokens[at]) continue;
      float* to = destination(offsets, tokens[at], run, dtable, partials, columns) + column;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        to[i] = sum[i];
        sum[i] = 0.0f;
      }
    }
  }
}

// Rows the runs did not write: 0 where the token does not occur, the sum of the partial sums where its list spans runs.
// Thread: a pack of a row.
template <int width>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const std::int32_t* offsets, const float* partials, float* dtable, Divisor packs_per_row,
                std::int64_t packs, std::int64_t columns) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= packs) return;
  const auto [token, pack] = packs_per_row.divide(static_cast<std::uint32_t>(index));
  const std::int32_t begin = offsets[token], end = offsets[token + 1];
  Pack<float, width> sum{};
  if (begin < end) {
    const std::int32_t first = begin / kRun, last = (end - 1) / kRun;
    if (first == last) return;
    const float* from = partials + std::int64_t{pack} * width;
    sum = load_pack<width>(from + (first * std::int64_t{2} + 1) * columns);
#pragma unroll 4
    for (std::int32_t run = first + 1; run <= last; ++run) {
      const Pack<float, width> part = load_pack<width>(from + run * std::int64_t{2} * columns);
#pragma unroll
      for (int i = 0; i < width; ++i) sum.at[i] += part.at[i];
    }
  }
  store_pack(dtable + index * width, sum);
}

Divisor row_divisor(std::int64_t rows, std::int64_t packs) {
  require(rows * packs < (std::int64_t{1} << 31), "embedding: more than 2^31 packs of elements");
  return Divisor(static_cast<std::uint32_t>(packs));
}

template <int width, class W, class T>
void launch_forward(cudaStream_t stream, const std::int32_t* tokens, const W* table, T* y, std::int64_t vocabulary,
                    std::int64_t columns, std::int64_t n, std::int64_t* first_bad) {
  const std::int64_t packs = n * (columns / width);
  const unsigned blocks = grid_blocks("embedding_forward", parts(packs, kThreads));
  forward_kernel<width><<<blocks, kThreads, 0, stream>>>(tokens, table, y, vocabulary, row_divisor(n, columns / width),
                                                         packs, columns,
                                                         reinterpret_cast<unsigned long long*>(first_bad));
  check_launch("embedding_forward");
}

template <int width, class T>
void launch_runs(cudaStream_t stream, const std::int32_t* offsets, const std::int32_t* positions, const T* dy,
                 float* dtable, float* partials, std::int64_t vocabulary, std::int64_t columns, std::int64_t n) {
  const dim3 grid(grid_blocks("embedding_backward", parts(n, kRun)),
                  grid_blocks("embedding_backward", parts(columns, kRunLanes * width)));
  runs_kernel<width><<<grid, kRunLanes, 0, stream>>>(offsets, positions, dy, dtable, partials,
                                                     static_cast<std::int32_t>(vocabulary), columns);
  check_launch("embedding_backward");
}

template <int width>
void launch_rows(cudaStream_t stream, const std::int32_t* offsets, const float* partials, float* dtable,
                 std::int64_t vocabulary, std::int64_t columns) {
  const std::int64_t packs = vocabulary * (columns / width);
  const unsigned blocks = grid_blocks("embedding_backward", parts(packs, kThreads));
  rows_kernel<width><<<blocks, kThreads, 0, stream>>>(offsets, partials, dtable,
                                                      row_divisor(vocabulary, columns / width), packs, columns);
  check_launch("embedding_backward");
}

}  // namespace

template <class W, class T>
void embedding_forward(cudaStream_t stream, const std::int32_t* tokens, const W* table, T* y, std::int64_t vocabulary,
                       std::int64_t width, std::int64_t n, std::int64_t* first_bad) {
  require_aligned("embedding_forward", {tokens, table, y});
  require(cudaMemsetAsync(first_bad, 0xFF, sizeof *first_bad, stream) == cudaSuccess, "embedding_forward: memset");
  if (n == 0) return;
  constexpr int pack = std::min(kPackWidth<W>, kPackWidth<T>);
  if (width % pack == 0) {
    launch_forward<pack>(stream, tokens, table, y, vocabulary, width, n, first_bad);
  } else {
    launch_forward<1>(stream, tokens, table, y, vocabulary, width, n, first_bad);
  }
}

std::size_t embedding_backward_scratch_bytes(std::int64_t n, std::int64_t width) {
  return static_cast<std::size_t>(parts(n, kRun) * 2 * width) * sizeof(float);
}

template <class T>
void embedding_backward(cudaStream_t stream, const std::int32_t* offsets, const std::int32_t* positions, const T* dy,
                        float* dtable, std::int64_t vocabulary, std::int64_t width, std::int64_t n, void* scratch) {
  require_aligned("embedding_backward", {offsets, positions, dy, dtable, scratch});
  auto* partials = static_cast<float*>(scratch);
  constexpr int pack = 4;  // also for bf16: the sums of eight columns would not leave room for the loads
  if (width % pack == 0) {
    if (n > 0) launch_runs<pack>(stream, offsets, positions, dy, dtable, partials, vocabulary, width, n);
    launch_rows<pack>(stream, offsets, partials, dtable, vocabulary, width);
  } else {
    if (n > 0) launch_runs<1>(stream, offsets, positions, dy, dtable, partials, vocabulary, width, n);
    launch_rows<1>(stream, offsets, partials, dtable, vocabulary, width);
  }
}

template void embedding_forward(cudaStream_t, const std::int32_t*, const float*, float*, std::int64_t, std::int64_t,
                                std::int64_t, std::int64_t*);
template void embedding_forward(cudaStream_t, const std::int32_t*, const float*, bf16*, std::int64_t, std::int64_t,
                                std::int64_t, std::int64_t*);
template void embedding_forward(cudaStream_t, const std::int32_t*, const bf16*, bf16*, std::int64_t, std::int64_t,
                                std::int64_t, std::int64_t*);
template void embedding_backward(cudaStream_t, const std::int32_t*, const std::int32_t*, const float*, float*,
                                 std::int64_t, std::int64_t, std::int64_t, void*);
template void embedding_backward(cudaStream_t, const std::int32_t*, const std::int32_t*, const bf16*, float*,
                                 std::int64_t, std::int64_t, std::int64_t, void*);

}  // namespace overtake::cuda
