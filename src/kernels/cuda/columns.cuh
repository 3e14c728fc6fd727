#pragma once
// Work on channels-last arrays [images][rows][columns] where what is known per column stays in a thread's registers
// while rows stream by: maps, and sums over rows in two phases. A block is threadIdx.x packs of columns times
// threadIdx.y rows.
//
// An operation gives, for V elements of type T at a time,
//   Columns columns(image, column)            what is known per column
//   Loaded load(row, at)                      the reads; row counts through all images, at = row * columns + column
// and either
//   void store(columns, loaded, at)           a map, or
//   void add(columns, loaded, at, a, b)       two sums: adds to a[V] and b[V]

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/values.cuh"

namespace overtake::cuda {

inline constexpr int kColumnThreads = 256;
// Rows a thread has on their way at a time: with 16-byte loads and two blocks on a multiprocessor that is 32 KiB of it,
// more than the memory's latency asks for (about 25 KiB on H200).
inline constexpr int kRowsInFlight = 4;
// Columns of a block that sums: 128 bytes of bf16, a whole cache line.
inline constexpr int kSumColumns = 64;
// Blocks wanted for a sum: four for each multiprocessor of an H200. A constant: the order of a sum must not depend on
// the device.
inline constexpr std::int64_t kSumBlocks = 528;
// Rows below which another chunk of a sum is not worth its partial sums.
inline constexpr std::int64_t kLeastChunkRows = 64;
// Rows a thread of a map goes through, so that reading what is known per column weighs little.
inline constexpr int kMapRows = 8;

// Chunks that the rows of each image are summed in; a function of the shape alone.
inline std::int64_t column_chunks(std::int64_t images, std::int64_t rows, std::int64_t columns) {
  const std::int64_t tiles = (columns + kSumColumns - 1) / kSumColumns;
  return std::clamp<std::int64_t>(kSumBlocks / (tiles * images), 1, std::max<std::int64_t>(rows / kLeastChunkRows, 1));
}

// Floats of the partial sums: [images][column_chunks][2][columns].
inline std::int64_t column_partials(std::int64_t images, std::int64_t rows, std::int64_t columns) {
  return images * column_chunks(images, rows, columns) * 2 * columns;
}

// The smallest power of two of packs that covers the columns, at most `most` (a power of two).
inline unsigned packs_across(std::int64_t columns, int vector, int most) {
  unsigned packs = 1;
  while (packs < static_cast<unsigned>(most) && static_cast<std::int64_t>(packs) * vector < columns) packs *= 2;
  return packs;
}

// Calls visit(loaded, at) for the rows row, row + blockDim.y, ... below end, kRowsInFlight loads ahead.
template <class Op, class Visit>
__device__ inline void for_each_row(const Op& op, std::int64_t row, std::int64_t end, int columns, int column,
                                    const Visit& visit) {
  const int step = static_cast<int>(blockDim.y);
  for (; row + (kRowsInFlight - 1) * step < end; row += kRowsInFlight * step) {
    typename Op::Loaded loaded[kRowsInFlight];
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      loaded[i] = op.load(row + i * step, (row + i * step) * columns + column);
    }
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) visit(loaded[i], (row + i * step) * columns + column);
  }
  for (; row < end; row += step) visit(op.load(row, row * columns + column), row * columns + column);
}

// grid: (images * chunks, tiles of columns). partials: [images][chunks][2][columns].
template <int V, class Op>
__global__ void __launch_bounds__(kColumnThreads)
    column_sums_kernel(Op op, std::int64_t rows, int columns, int chunks, float* partials) {
  const int image = static_cast<int>(blockIdx.x) / chunks, chunk = static_cast<int>(blockIdx.x) % chunks;
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * V;
  float a[V] = {}, b[V] = {};
  if (column < columns) {
    const std::int64_t first = static_cast<std::int64_t>(image) * rows;
    const std::int64_t begin = first + rows * chunk / chunks, end = first + rows * (chunk + 1) / chunks;
    const typename Op::Columns known = op.columns(image, column);
    for_each_row(op, begin + threadIdx.y, end, columns, column,
                 [&](const typename Op::Loaded& loaded, std::int64_t at) { op.add(known, loaded, at, a, b); });
  }

  __shared__ float sums[2 * V][kColumnThreads];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    sums[i][thread] = a[i];
    sums[V + i][thread] = b[i];
  }
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) {
#pragma unroll
      for (int i = 0; i < 2 * V; ++i) sums[i][thread] += sums[i][thread + half * blockDim.x];
    }
    __syncthreads();
  }
  if (threadIdx.y == 0 && column < columns) {
    float* partial = partials + static_cast<std::int64_t>(blockIdx.x) * 2 * columns + column;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      partial[i] = sums[i][thread];
      partial[columns + i] = sums[V + i][thread];
    }
  }
}

// grid: (images * blocks of rows, tiles of columns).
template <int V, class Op>
__global__ void __launch_bounds__(kColumnThreads)
    column_map_kernel(Op op, std::int64_t rows, int columns, int row_blocks) {
  const int image = static_cast<int>(blockIdx.x) / row_blocks, block = static_cast<int>(blockIdx.x) % row_blocks;
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * V;
  if (column >= columns) return;
  const int block_rows = static_cast<int>(blockDim.y) * kMapRows;
  const std::int64_t first = static_cast<std::int64_t>(image) * rows,
                     begin = static_cast<std::int64_t>(block) * block_rows;
  const std::int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
  const typename Op::Columns known = op.columns(image, column);
  for_each_row(op, first + begin + threadIdx.y, first + end, columns, column,
               [&](const typename Op::Loaded& loaded, std::int64_t at) { op.store(known, loaded, at); });
}

template <int V, class Op>
void column_sums(cudaStream_t stream, const char* name, const Op& op, std::int64_t images, std::int64_t rows,
                 std::int64_t columns, float* partials) {
  const std::int64_t chunks = column_chunks(images, rows, columns);
  const unsigned across = packs_across(columns, V, kSumColumns / V);
  const dim3 threads(across, kColumnThreads / across);
  const dim3 grid(grid_blocks(name, images * chunks), grid_blocks(name, (columns + across * V - 1) / (across * V)));
  column_sums_kernel<V>
      <<<grid, threads, 0, stream>>>(op, rows, static_cast<int>(columns), static_cast<int>(chunks), partials);
  check_launch(name);
}

template <int V, class Op>
void column_map(cudaStream_t stream, const char* name, const Op& op, std::int64_t images, std::int64_t rows,
                std::int64_t columns) {
  const unsigned across = packs_across(columns, V, 32);
  const dim3 threads(across, kColumnThreads / across);
  const std::int64_t row_blocks = (rows + threads.y * kMapRows - 1) / (threads.y * kMapRows);
  const dim3 grid(grid_blocks(name, images * row_blocks), grid_blocks(name, (columns + across * V - 1) / (across * V)));
  column_map_kernel<V><<<grid, threads, 0, stream>>>(op, rows, static_cast<int>(columns), static_cast<int>(row_blocks));
  check_launch(name);
}

// Second phase of a sum. A block takes 8 columns, a 32-byte sector, and goes through the partial sums 64 at a time.
inline constexpr int kCombineColumns = 8, kCombineRows = 64;

// Calls finish(column, total of the first sums, total of the second). partials: [count][2][columns].
template <class Finish>
__global__ void __launch_bounds__(kCombineColumns* kCombineRows)
    combine_kernel(const float* partials, int count, int columns, Finish finish) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(blockIdx.x) * kCombineColumns + x;
  double a = 0, b = 0;
  if (column < columns) {
#pragma unroll 4
    for (int k = y; k < count; k += kCombineRows) {
      const float* partial = partials + static_cast<std::int64_t>(k) * 2 * columns + column;
      a += static_cast<double>(partial[0]);
      b += static_cast<double>(partial[columns]);
    }
  }
  __shared__ double sums[2][kCombineRows][kCombineColumns];
  sums[0][y][x] = a;
  sums[1][y][x] = b;
  __syncthreads();
  for (int half = kCombineRows / 2; half > 0; half /= 2) {
    if (y < half) {
      sums[0][y][x] += sums[0][y + half][x];
      sums[1][y][x] += sums[1][y + half][x];
    }
    __syncthreads();
  }
  if (y == 0 && column < columns) finish(column, sums[0][0][x], sums[1][0][x]);
}

template <class Finish>
void combine_columns(cudaStream_t stream, const char* name, const float* partials, std::int64_t count,
                     std::int64_t columns, const Finish& finish) {
  const unsigned grid = grid_blocks(name, (columns + kCombineColumns - 1) / kCombineColumns);
  combine_kernel<<<grid, dim3(kCombineColumns, kCombineRows), 0, stream>>>(partials, static_cast<int>(count),
                                                                           static_cast<int>(columns), finish);
  check_launch(name);
}

// finish of combine_columns: writes both totals, each where its array is not null.
struct StoreTotals {
  float *first, *second;  // [columns]

  __device__ void operator()(int column, double a, double b) const {
    if (first != nullptr) first[column] = static_cast<float>(a);
    if (second != nullptr) second[column] = static_cast<float>(b);
  }
};

}  // namespace overtake::cuda
