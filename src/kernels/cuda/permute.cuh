#pragma once
// Permutations of dims, with a change of type on the way. For .cu files only.

#include <algorithm>
#include <vector>

#include "kernels/cpu/move.h"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/launch.h"

namespace overtake::cuda::access {

inline constexpr int kPermuteThreads = 256;
inline constexpr int kPermuteTile = 64;     // rows and columns of a transposed tile: 128 bytes of bf16 each way
inline constexpr int kPermuteNarrow = 16;   // planes narrower than this would leave most of a tile empty
inline constexpr int kPermuteElements = 4;  // of a thread that gathers
static_assert(kPermuteTile * kPermuteTile % kPermuteThreads == 0);

template <class To, class From>
__device__ inline To convert(From x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else {
    return narrow<To>(widen(x));
  }
}

// y, contiguous, in the order of its memory: dims outermost first, the last in packs; strides of x in elements.
struct GatherWalk {
  int rank;
  Divisor dims[7];
  std::int64_t x_strides[7];
};

template <int width, class From, class To>
__global__ void __launch_bounds__(kPermuteThreads)
    gather_kernel(const __grid_constant__ GatherWalk walk, const From* x, To* y, std::uint32_t packs) {
  const std::uint32_t first = blockIdx.x * (kPermuteThreads * kPermuteElements) + threadIdx.x;
  Pack<From, width> held[kPermuteElements];
#pragma unroll
  for (int k = 0; k < kPermuteElements; ++k) {
    std::uint32_t rest = first + k * kPermuteThreads;
    if (rest >= packs) continue;
    std::int64_t offset = 0;
    for (int d = walk.rank - 1; d > 0; --d) {
      const auto [quotient, at] = walk.dims[d].divide(rest);
      rest = quotient;
      offset += at * walk.x_strides[d];
    }
    held[k] = load_pack<width>(x + offset + rest * walk.x_strides[0]);
  }
#pragma unroll
  for (int k = 0; k < kPermuteElements; ++k) {
    const std::uint32_t index = first + k * kPermuteThreads;
    if (index >= packs) continue;
    Pack<To, width> out;
#pragma unroll
    for (int i = 0; i < width; ++i) out.at[i] = convert<To>(held[k].at[i]);
    store_pack(y + static_cast<std::int64_t>(index) * width, out);
  }
}

// Planes to transpose: x has the rows of y contiguous, y has the columns.
struct TransposeWalk {
  std::int64_t rows, columns, x_column_step, y_row_step;
  Divisor row_tiles, column_tiles;
  int rank;
  Divisor dims[6];
  std::int64_t x_strides[6], y_strides[6];
};

template <class From, class To>
__global__ void __launch_bounds__(kPermuteThreads)
    transpose_kernel(const __grid_constant__ TransposeWalk walk, const From* x, To* y) {
  constexpr int kLines = kPermuteThreads / kPermuteTile, kSteps = kPermuteTile / kLines;
  __shared__ To tile[kPermuteTile][kPermuteTile + 4 / sizeof(To)];  // [column][row]; a word more: no bank conflicts
  const auto [plane_and_row, column_tile] = walk.column_tiles.divide(blockIdx.x);
  const auto [plane, row_tile] = walk.row_tiles.divide(plane_and_row);
  std::uint32_t rest = plane;
  for (int d = walk.rank - 1; d >= 0; --d) {
    const auto [quotient, at] = walk.dims[d].divide(rest);
    rest = quotient;
    x += at * walk.x_strides[d];
    y += at * walk.y_strides[d];
  }
  const std::int64_t row = std::int64_t{row_tile} * kPermuteTile, column = std::int64_t{column_tile} * kPermuteTile;
  const int lane = threadIdx.x % kPermuteTile, line = threadIdx.x / kPermuteTile;
  From held[kSteps];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const std::int64_t c = column + line + s * kLines;
    if (row + lane < walk.rows && c < walk.columns) held[s] = x[c * walk.x_column_step + row + lane];
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if (row + lane < walk.rows && column + line + s * kLines < walk.columns) {
      tile[line + s * kLines][lane] = convert<To>(held[s]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const std::int64_t r = row + line + s * kLines;
    if (r < walk.rows && column + lane < walk.columns)
      y[r * walk.y_row_step + column + lane] = tile[lane][line + s * kLines];
  }
}

// Gathers y [dims] in order; the dims are those of the plan with the plane's rows put back where they were.
template <class From, class To>
void launch_gather(cudaStream_t stream, const char* name, const kernels::PermutePlan& plan, const From* x, To* y) {
  struct Dim {
    std::int64_t extent, x_stride, y_stride;
  };
  std::vector<Dim> dims;
  for (std::size_t d = 0; d < static_cast<std::size_t>(plan.rank); ++d) {
    dims.push_back({plan.dims[d], plan.x_strides[d], plan.y_strides[d]});
  }
  if (plan.x_column_step != 1 && plan.tile_rows > 1) dims.push_back({plan.tile_rows, 1, plan.y_row_step});
  std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.y_stride > b.y_stride; });
  dims.push_back({plan.columns, plan.x_column_step, 1});
  const std::size_t rank = dims.size();

  constexpr int wide = std::min(kPackWidth<From>, kPackWidth<To>);
  bool in_packs = plan.x_column_step == 1 && plan.columns % wide == 0;
  for (std::size_t d = 0; d + 1 < rank; ++d) in_packs = in_packs && dims[d].x_stride % wide == 0;
  const auto run = [&](auto width) {
    GatherWalk walk{};
    walk.rank = static_cast<int>(rank);
    std::int64_t packs = 1;
    for (std::size_t d = 0; d < rank; ++d) {
      const int step = d == rank - 1 ? width : 1;
      walk.dims[d] = Divisor(static_cast<std::uint32_t>(dims[d].extent / step));
      walk.x_strides[d] = dims[d].x_stride * step;
      packs *= dims[d].extent / step;
      require(packs < (std::int64_t{1} << 31), "permute: more than 2^31 packs of elements");
    }
    const unsigned blocks = grid_blocks(name, parts(packs, kPermuteThreads * kPermuteElements));
    gather_kernel<width><<<blocks, kPermuteThreads, 0, stream>>>(walk, x, y, static_cast<std::uint32_t>(packs));
    check_launch(name);
  };
  in_packs ? run(std::integral_constant<int, wide>{}) : run(std::integral_constant<int, 1>{});
}

template <class From, class To>
void launch_permute(cudaStream_t stream, const char* name, const kernels::PermutePlan& plan, const From* x, To* y) {
  require_aligned(name, {x, y});
  if (plan.x_column_step == 1 || std::min(plan.columns, plan.tile_rows) < kPermuteNarrow) {
    launch_gather(stream, name, plan, x, y);
    return;
  }
  const std::int64_t row_tiles = parts(plan.tile_rows, kPermuteTile), column_tiles = parts(plan.columns, kPermuteTile);
  std::int64_t planes = 1;
  TransposeWalk walk{};
  for (int d = 0; d < plan.rank; ++d) {
    const auto i = static_cast<std::size_t>(d);
    planes *= plan.dims[i];
    walk.dims[d] = Divisor(static_cast<std::uint32_t>(plan.dims[i]));
    walk.x_strides[d] = plan.x_strides[i];
    walk.y_strides[d] = plan.y_strides[i];
  }
  walk.rank = plan.rank;
  walk.rows = plan.tile_rows;
  walk.columns = plan.columns;
  walk.x_column_step = plan.x_column_step;
  walk.y_row_step = plan.y_row_step;
  walk.row_tiles = Divisor(static_cast<std::uint32_t>(row_tiles));
  walk.column_tiles = Divisor(static_cast<std::uint32_t>(column_tiles));
  const unsigned blocks = grid_blocks(name, planes * row_tiles * column_tiles);
  transpose_kernel<<<blocks, kPermuteThreads, 0, stream>>>(walk, x, y);
  check_launch(name);
}

}  // namespace overtake::cuda::access
