#pragma once
// Work on channels-last arrays [images][rows][columns] where what is known per column stays in a thread's registers
// while rows stream by: maps, sums over rows in two phases, and sums over all rows in one kernel (column_totals). A
// block is threadIdx.x packs of columns times threadIdx.y rows.
//
// An operation gives, for V elements of type T at a time,
//   Columns columns(image, column)            what is known per column
//   Loaded load(row, at)                      the reads; row counts through all images, at = row * columns + column
// and either
//   void store(columns, loaded, row, at)      a map, or
//   void add(columns, loaded, at, a, b)       two sums: adds to a[V] and b[V]
// column_totals gives add the row too, before `at`, and wants kBlocks, the blocks of kTotalThreads threads that a
// multiprocessor should hold at a time.

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
// Rows a thread of a map goes through, so that reading what is known per column weighs little; but only as many as are
// in flight where there would be fewer than kMapBlocks blocks.
inline constexpr int kMapRows = 2 * kRowsInFlight;
inline constexpr std::int64_t kMapBlocks = 528;

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

// Columns cut into about `wanted` tiles of almost equal width, `across` packs of V columns each.
struct Tiling {
  unsigned across, tiles;

  Tiling(std::int64_t columns, int vector, std::int64_t wanted) {
    const std::int64_t packs = columns / vector, packs_each = (packs + wanted - 1) / wanted;
    across = static_cast<unsigned>(packs_each);
    tiles = static_cast<unsigned>((packs + packs_each - 1) / packs_each);
  }
};

// The rows that a thread goes through: first, first + step, first + 2 * step, ...; `left` rows lie between the first
// and the end, the first included, and none if it is not positive.
struct Rows {
  std::int64_t first, left;
  int step;  // backwards if negative
};

// An array of rows with a gap after each, in elements: where an operation that counts without gaps finds its own. Fewer
// than 2^31 rows.
template <class T>
struct GappedRows {
  T* data;
  int gap;

  __device__ T* at(std::int64_t row, std::int64_t at_dense) const {
    return data + (at_dense + static_cast<std::int64_t>(static_cast<int>(row)) * gap);
  }
};

// Calls visit(known, loaded, row, at) for the rows of a thread, with kRowsInFlight rows on their way all the time: as
// soon as a row is visited, another is asked for. The first are on their way before what is known per column is.
template <class Op, class Visit>
__device__ inline void for_each_row(const Op& op, int image, Rows rows, int columns, int column, const Visit& visit) {
  const int stride = rows.step < 0 ? -rows.step : rows.step;
  const std::int64_t leap = static_cast<std::int64_t>(rows.step) * columns;
  std::int64_t at = rows.first * columns + column;
  typename Op::Loaded loaded[kRowsInFlight];
#pragma unroll
  for (int i = 0; i < kRowsInFlight; ++i) {
    if (rows.left > i * stride) loaded[i] = op.load(rows.first + i * rows.step, at + i * leap);
  }
  const typename Op::Columns known = op.columns(image, column);
  while (true) {
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      if (rows.left <= 0) return;
      visit(known, loaded[i], rows.first, at);
      if (rows.left > kRowsInFlight * stride) {
        loaded[i] = op.load(rows.first + kRowsInFlight * rows.step, at + kRowsInFlight * leap);
      }
      rows.left -= stride;
      rows.first += rows.step;
      at += leap;
    }
  }
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
    const std::int64_t row = begin + threadIdx.y;
    const auto add = [&](const auto& known, const auto& loaded, std::int64_t, std::int64_t at) {
      op.add(known, loaded, at, a, b);
    };
    for_each_row(op, image, {row, end - row, static_cast<int>(blockDim.y)}, columns, column, add);
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
    column_map_kernel(Op op, std::int64_t rows, int columns, int row_blocks, int thread_rows) {
  const int image = static_cast<int>(blockIdx.x) / row_blocks, block = static_cast<int>(blockIdx.x) % row_blocks;
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * V;
  if (column >= columns) return;
  const int block_rows = static_cast<int>(blockDim.y) * thread_rows;
  const std::int64_t begin = static_cast<std::int64_t>(block) * block_rows, row = begin + threadIdx.y;
  const std::int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
  const auto store = [&](const auto& known, const auto& loaded, std::int64_t own_row, std::int64_t at) {
    op.store(known, loaded, own_row, at);
  };
  for_each_row(op, image, {image * rows + row, end - row, static_cast<int>(blockDim.y)}, columns, column, store);
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
  const Tiling tiling(columns, V, (columns / V + 31) / 32);
  const dim3 threads(tiling.across, kColumnThreads / tiling.across);
  const auto row_blocks = [&](std::int64_t thread_rows) {
    return (rows + threads.y * thread_rows - 1) / (threads.y * thread_rows);
  };
  const int thread_rows = images * row_blocks(kMapRows) * tiling.tiles < kMapBlocks ? kRowsInFlight : kMapRows;
  const std::int64_t blocks = row_blocks(thread_rows);
  const dim3 grid(grid_blocks(name, images * blocks), tiling.tiles);
  column_map_kernel<V>
      <<<grid, threads, 0, stream>>>(op, rows, static_cast<int>(columns), static_cast<int>(blocks), thread_rows);
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

// Sums over all rows in one kernel: a block sums a chunk of the rows for a tile of columns, and the last block of a
// tile to be done adds up the chunks, in their order; so it does not matter which block that is.

inline constexpr int kTotalThreads = 512;
// Blocks wanted for each that a multiprocessor holds at a time: nearly all of the 132 of an H200, all at once. Powers
// of two leave the last block whole rounds of work. A constant, as kSumBlocks.
inline constexpr std::int64_t kTotalBlocks = 128;
// Least columns of a tile: 128 bytes of bf16, a whole cache line. Tiles of fewer than twice that.
inline constexpr std::int64_t kTileColumns = 64;
// Elements below which another chunk of a tile is not worth its partial sums.
inline constexpr std::int64_t kLeastChunk = 8192;
// Chunks that a thread of the last block has on their way at a time, a power of two.
inline constexpr int kChunksInFlight = 8;

inline std::int64_t total_tiles(std::int64_t columns) { return std::max<std::int64_t>(columns / kTileColumns, 1); }

// Chunks that the rows are summed in; a function of the shape alone. blocks: of the operation, kBlocks.
inline std::int64_t total_chunks(std::int64_t rows, std::int64_t columns, int blocks) {
  const std::int64_t tiles = total_tiles(columns);
  const std::int64_t most = std::max<std::int64_t>(rows * (columns / tiles) / kLeastChunk, 1);
  return std::clamp<std::int64_t>(kTotalBlocks * blocks / tiles, 1, most);
}

// Floats of the partial sums, enough for every V: [tiles][chunks][2][columns of a tile].
inline std::int64_t total_partials(std::int64_t rows, std::int64_t columns, int blocks) {
  const std::int64_t tiles = total_tiles(columns), widest = 8;
  const std::int64_t width = (columns + widest * tiles - 1) / (widest * tiles) * widest;
  return tiles * total_chunks(rows, columns, blocks) * 2 * width;
}

// Where the sums of a tile lie, in shared memory and among the partial sums. Groups of `group` columns of neighbouring
// threads lie side by side: such accesses meet no bank twice.
template <int V>
struct TotalLayout {
  static_assert(V == 1 || V % 4 == 0);
  static constexpr int group = V == 1 ? 1 : 4;         // floats of an access
  static constexpr int thread_groups = 2 * V / group;  // of the two sums of V columns

  unsigned across;                                          // packs of columns
  __device__ unsigned width() const { return across * V; }  // columns
  __device__ unsigned line() const { return 2 * width(); }  // floats, both sums
  __device__ unsigned at(unsigned pack, int i) const { return i / group * across * group + pack * group + i % group; }
};

// Sums a[V] and b[V] of all threads that have the same columns; writes the sums of the block to partial [2][columns].
template <int V>
__device__ inline void store_block_totals(const TotalLayout<V> layout, const float (&a)[V], const float (&b)[V],
                                          float* threads_sums, float* partial) {
  const unsigned x = threadIdx.x, y = threadIdx.y, line = layout.line();
  float* own = threads_sums + y * line;
#pragma unroll
  for (int i = 0; i < V; i += layout.group) {
    if constexpr (V == 1) {
      own[layout.at(x, 0)] = a[0];
      own[layout.at(x, 0) + layout.width()] = b[0];
    } else {
      const unsigned at = layout.at(x, i);
      *reinterpret_cast<float4*>(own + at) = float4{a[i], a[i + 1], a[i + 2], a[i + 3]};
      *reinterpret_cast<float4*>(own + at + layout.width()) = float4{b[i], b[i + 1], b[i + 2], b[i + 3]};
    }
  }
  // 2 * V rows of threads share the places of a line, and there are at least twice as many rows: each place is summed
  // in parts, 2 * V lines of the threads or a few more each.
  __shared__ float parts_sums[kTotalThreads];
  const unsigned parts = blockDim.y / (2 * V), part = y / (2 * V), place = y % (2 * V) * layout.across + x;
  __syncthreads();
  if (part < parts) {
    float sum = 0;
#pragma unroll
    for (unsigned i = 0; i < 2 * V; ++i) sum += threads_sums[(part + i * parts) * line + place];
    for (unsigned k = part + 2 * V * parts; k < blockDim.y; k += parts) sum += threads_sums[k * line + place];
    parts_sums[part * line + place] = sum;
  }
  __syncthreads();
  if (part == 0) {
    float sum = 0;
#pragma unroll 4
    for (unsigned k = 0; k < parts; ++k) sum += parts_sums[k * line + place];
    partial[place] = sum;
  }
}

// True in all threads of the block that is the last of `blocks` to come here, with what the others wrote before. Leaves
// the counter at 0, as it was.
__device__ inline bool arrives_last(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    unsigned before;  // the barriers make the release and the acquire hold for all threads of the block
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    last = before == blocks - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  return last;
}

// Adds up the chunks of a tile: partials [chunks][2][columns of the tile]. Returns both totals of the columns of the
// tile, one column to each of the first threads. sums: shared, 2 * columns doubles for each part.
template <int V>
__device__ inline double2 tile_totals(const TotalLayout<V> layout, const float* partials, int chunks, double* sums) {
  constexpr int group = layout.group;
  const unsigned x = threadIdx.x, y = threadIdx.y, line = layout.line();
  const unsigned parts = blockDim.y / layout.thread_groups, part = y / layout.thread_groups;
  const unsigned place = (y % layout.thread_groups * layout.across + x) * group;
  if (part < parts) {
    double sum[group] = {};
    const int step = static_cast<int>(parts);
    for (int k = static_cast<int>(part); k < chunks; k += kChunksInFlight * step) {
      float values[kChunksInFlight][group] = {};
#pragma unroll
      for (int i = 0; i < kChunksInFlight; ++i) {
        if (k + i * step >= chunks) continue;
        const float* from = partials + static_cast<std::int64_t>(k + i * step) * line + place;
        if constexpr (V == 1) {
          values[i][0] = __ldcg(from);
        } else {
          const float4 four = __ldcg(reinterpret_cast<const float4*>(from));
          values[i][0] = four.x, values[i][1] = four.y, values[i][2] = four.z, values[i][3] = four.w;
        }
      }
      // These few are added in float32, as their own elements were; what becomes a double is what takes time.
#pragma unroll
      for (int half = kChunksInFlight / 2; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < half * group; ++i) values[i / group][i % group] += values[half + i / group][i % group];
      }
#pragma unroll
      for (int j = 0; j < group; ++j) sum[j] += static_cast<double>(values[0][j]);
    }
#pragma unroll
    for (int j = 0; j < group; ++j) sums[part * line + place + j] = sum[j];
  }
  __syncthreads();
  double2 totals = {0, 0};
  const unsigned column = y * layout.across + x;
  if (column < layout.width()) {
    const unsigned at = layout.at(column / V, static_cast<int>(column % V));
#pragma unroll 4
    for (unsigned k = 0; k < parts; ++k) {
      totals.x += sums[k * line + at];
      totals.y += sums[k * line + at + layout.width()];
    }
  }
  return totals;
}

// grid: (chunks, tiles). Chunks are interleaved and all blocks go from the last row to the first: what wrote the array
// wrote its end last, and what reads it next begins with its first rows, so that both meet the cache.
template <int V, class Op, class Finish>
__global__ void __launch_bounds__(kTotalThreads, Op::kBlocks)
    column_totals_kernel(const Op op, std::int64_t rows, int columns, float* partials, unsigned* counters,
                         const Finish finish) {
  const TotalLayout<V> layout{blockDim.x};
  const unsigned chunks = gridDim.x, tile = blockIdx.y;
  const int first = static_cast<int>(tile * layout.width()), column = first + static_cast<int>(threadIdx.x) * V;
  float a[V] = {}, b[V] = {};
  if (column < columns) {
    const std::int64_t left = rows - (blockIdx.x * blockDim.y + threadIdx.y);
    const auto add = [&](const auto& known, const auto& loaded, std::int64_t row, std::int64_t at) {
      op.add(known, loaded, row, at, a, b);
    };
    for_each_row(op, 0, {left - 1, left, -static_cast<int>(chunks * blockDim.y)}, columns, column, add);
  }

  __shared__ __align__(16) float sums[kTotalThreads * 2 * V];  // and then, as doubles, those of the chunks
  static_assert(sizeof(double) * layout.group <= sizeof(float) * 2 * V);
  float* of_tile = partials + static_cast<std::int64_t>(tile) * chunks * layout.line();
  store_block_totals<V>(layout, a, b, sums, of_tile + static_cast<std::int64_t>(blockIdx.x) * layout.line());
  if (!arrives_last(counters + tile, chunks)) return;
  const double2 totals = tile_totals<V>(layout, of_tile, static_cast<int>(chunks), reinterpret_cast<double*>(sums));
  const unsigned own = threadIdx.y * blockDim.x + threadIdx.x;
  if (own < layout.width() && first + static_cast<int>(own) < columns) {
    finish(first + static_cast<int>(own), totals.x, totals.y);
  }
}

// Calls finish(column, total of the first sums, total of the second). op: of x [rows][columns]. counters:
// [total_tiles], 0 before and after.
template <int V, class Op, class Finish>
void column_totals(cudaStream_t stream, const char* name, const Op& op, std::int64_t rows, std::int64_t columns,
                   float* partials, unsigned* counters, const Finish& finish) {
  const Tiling tiling(columns, V, total_tiles(columns));
  const dim3 threads(tiling.across, kTotalThreads / tiling.across);
  const dim3 grid(grid_blocks(name, total_chunks(rows, columns, Op::kBlocks)), tiling.tiles);
  column_totals_kernel<V>
      <<<grid, threads, 0, stream>>>(op, rows, static_cast<int>(columns), partials, counters, finish);
  check_launch(name);
}

}  // namespace overtake::cuda
