#include <algorithm>

#include "kernels/cuda/binary.h"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/pixels.cuh"
#include "kernels/cuda/values.cuh"

namespace overtake::cuda {

namespace {

using namespace access;

constexpr int kThreads = 256;
constexpr std::int64_t kEnoughBlocks = 1024;  // keep the memory of any GPU busy
constexpr std::int64_t kMostAdds = 256;       // of a thread, one after another in float, for accuracy
constexpr std::int64_t kLeastAdds = 4;        // of a thread: less does not pay for the second phase

// What a sum reads; all strides in elements. As in BinaryGradPlan, dims are those kept, then those summed.
struct SumWalk {
  int kept_rank, summed_rank;
  std::int64_t row;  // elements
  Divisor packs_per_row;
  Divisor dims[kernels::kMaxRank];
  std::int64_t dy_strides[kernels::kMaxRank], grad_strides[kernels::kMaxRank], other_strides[kernels::kMaxRank];
  std::int64_t other_row_step;
  std::int64_t elements;  // of the gradient: the distance of chunks in the partial sums
  std::uint32_t items;    // summands of an element: rows, or packs of rows where the row is summed
  std::uint32_t items_per_chunk;
  std::uint32_t chunks;
  std::uint32_t column_tiles;  // of lanes packs each; columns only
  std::uint32_t lanes;         // threads side by side in a row, a power of two (columns); threads of a sum (rows)
  std::uint32_t threads;       // of a block
  std::uint32_t kept;          // rows or, where the row is summed, elements
};

struct Offsets {
  std::int64_t dy, grad, other;
};

// Offsets of index `rest` among dims [first, last).
__device__ Offsets offsets_at(const SumWalk& walk, int first, int last, std::uint32_t rest) {
  Offsets at{};
  for (int d = last - 1; d >= first; --d) {
    std::uint32_t i = rest;
    if (d > first) {
      const auto [quotient, remainder] = walk.dims[d].divide(rest);
      i = remainder;
      rest = quotient;
    }
    at.dy += i * walk.dy_strides[d];
    at.grad += i * walk.grad_strides[d];
    at.other += i * walk.other_strides[d];
  }
  return at;
}

// A pack of summands, dy times the other operand where there is one.
template <bool has_other, int width, class T>
struct Summands {
  Packed<T, width> dy, other;

  __device__ void load(const T* dy_at, const T* other_at, bool other_is_row) {
    dy = load_packed<width>(dy_at);
    if constexpr (has_other) {
      if (width == 1 || other_is_row) {
        other = load_packed<width>(other_at);
      } else {
        Pack<T, width> repeated;
#pragma unroll
        for (int i = 0; i < width; ++i) repeated.at[i] = *other_at;
        other = std::bit_cast<Packed<T, width>>(repeated);
      }
    }
  }
  __device__ void values(float (&result)[width]) const {
    unpack(dy, result);
    if constexpr (has_other) {
      float factors[width];
      unpack(other, factors);
#pragma unroll
      for (int i = 0; i < width; ++i) result[i] *= factors[i];
    }
  }
};

// Sums over rows, the row being kept. Block: (kept row, chunk, tile of columns); its threads are `lanes` columns wide,
// and those of a column add every (threads / lanes)-th row, then each other's sums pairwise.
template <bool has_other, int width, int threads, class T, class Out>
__global__ void __launch_bounds__(threads)
    sum_columns_kernel(const __grid_constant__ SumWalk walk, const T* __restrict__ dy, const T* __restrict__ other,
                       Out* __restrict__ out, float scale) {
  __shared__ float shared[width][threads];
  const std::uint32_t tile = blockIdx.x % walk.column_tiles, rest = blockIdx.x / walk.column_tiles;
  const std::uint32_t chunk = rest % walk.chunks, kept = rest / walk.chunks;
  const std::uint32_t x = threadIdx.x & (walk.lanes - 1), y = threadIdx.x / walk.lanes, depth = threads / walk.lanes;
  const std::int64_t column = (static_cast<std::int64_t>(tile) * walk.lanes + x) * width;
  const Offsets at = offsets_at(walk, 0, walk.kept_rank, kept);
  const int last = walk.kept_rank + walk.summed_rank;
  const std::uint32_t end = min(walk.items, (chunk + 1) * walk.items_per_chunk);
  const bool other_is_row = walk.other_row_step == 1;

  float sum[width] = {};
  if (column < walk.row) {
    dy += at.dy + column;
    other += at.other + column * walk.other_row_step;
    const auto load = [&](Summands<has_other, width, T>& summands, std::uint32_t item) {
      const Offsets piece = offsets_at(walk, walk.kept_rank, last, item);
      summands.load(dy + piece.dy, other + piece.other, other_is_row);
    };
    const auto add = [&](const Summands<has_other, width, T>& summands) {
      float values[width];
      summands.values(values);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += values[i];
    };
    for (std::uint32_t item = chunk * walk.items_per_chunk + y; item < end; item += 4 * depth) {
      Summands<has_other, width, T> summands[4] = {};  // four loads in flight, zeros where there are fewer
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (item + k * depth < end) load(summands[k], item + k * depth);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) add(summands[k]);
    }
  }

#pragma unroll
  for (int i = 0; i < width; ++i) shared[i][threadIdx.x] = sum[i];
  add_pairwise(shared, walk.lanes, depth);
  if (y > 0 || column >= walk.row) return;
  out += chunk * walk.elements + at.grad + column;
#pragma unroll
  for (int i = 0; i < width; ++i) out[i] = narrow<Out>(scale * shared[i][threadIdx.x]);
}

// Sums over rows and along them. `lanes` threads (a warp or the block) make one sum, of a chunk of an element.
template <bool has_other, int width, class T, class Out>
__global__ void __launch_bounds__(kThreads)
    sum_rows_kernel(const __grid_constant__ SumWalk walk, const T* dy, const T* other, Out* out, float scale) {
  __shared__ float warps[kThreads / 32];
  const std::uint32_t chunk = blockIdx.x % walk.chunks;
  const std::uint32_t kept = blockIdx.x / walk.chunks * (kThreads / walk.lanes) + threadIdx.x / walk.lanes;
  if (kept >= walk.kept) return;  // a whole warp; with a block per sum there is none too many
  const std::uint32_t lane = threadIdx.x & (walk.lanes - 1);
  const Offsets at = offsets_at(walk, 0, walk.kept_rank, kept);
  const int last = walk.kept_rank + walk.summed_rank;
  const std::uint32_t end = min(walk.items, (chunk + 1) * walk.items_per_chunk);
  const bool other_is_row = walk.other_row_step == 1;

  float sum = 0;
  dy += at.dy;
  other += at.other;
  const auto load = [&](Summands<has_other, width, T>& summands, std::uint32_t item) {
    const auto [row, pack] = walk.packs_per_row.divide(item);
    const Offsets piece = offsets_at(walk, walk.kept_rank, last, row);
    const std::int64_t column = static_cast<std::int64_t>(pack) * width;
    summands.load(dy + piece.dy + column, other + piece.other + column * walk.other_row_step, other_is_row);
  };
  const auto add = [&](const Summands<has_other, width, T>& summands) {
    float values[width];
    summands.values(values);
    float part = values[0];
#pragma unroll
    for (int i = 1; i < width; ++i) part += values[i];
    sum += part;
  };
  for (std::uint32_t item = chunk * walk.items_per_chunk + lane; item < end; item += 4 * walk.lanes) {
    Summands<has_other, width, T> summands[4] = {};  // four loads in flight, zeros where there are fewer
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (item + k * walk.lanes < end) load(summands[k], item + k * walk.lanes);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) add(summands[k]);
  }

#pragma unroll
  for (int half = 16; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffu, sum, half);
  if (walk.lanes > 32) {
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = warps[0];
#pragma unroll
    for (int w = 1; w < kThreads / 32; ++w) sum += warps[w];
  }
  if (lane == 0) out[chunk * walk.elements + at.grad] = narrow<Out>(scale * sum);
}

// Whether packs of `width` along the row are packs everywhere in dy and the other operand.
bool splits(const BinaryGradPlan& plan, bool has_other, int width) {
  if (plan.row % width != 0 || (has_other && plan.other_row_step > 1)) return false;
  for (int d = 0; d < plan.kept_rank + plan.summed_rank; ++d) {
    const auto dim = static_cast<std::size_t>(d);
    if (plan.dy_strides[dim] % width != 0) return false;
    if (has_other && plan.other_row_step == 1 && plan.other_strides[dim] % width != 0) return false;
  }
  return true;
}

// Cuts the sums of `groups` independent blocks in chunks: enough blocks, none of too few or too many adds per thread.
void cut(SumWalk& walk, std::int64_t groups, std::int64_t threads_of_a_sum) {
  const std::int64_t items = walk.items;
  const std::int64_t useful =
      std::clamp<std::int64_t>(kEnoughBlocks / groups, 1, parts(items, threads_of_a_sum * kLeastAdds));
  const std::int64_t chunks = std::max(useful, parts(items, threads_of_a_sum * kMostAdds));
  // Rounds of four loads where that is about as much.
  const std::int64_t round = 4 * threads_of_a_sum, even = (parts(items, chunks) + round / 2) / round * round;
  walk.items_per_chunk = static_cast<std::uint32_t>(chunks > 1 && even > 0 ? even : parts(items, chunks));
  walk.chunks = static_cast<std::uint32_t>(parts(items, walk.items_per_chunk));
}

// whole: in one chunk, however long.
SumWalk make_walk(const BinaryGradPlan& plan, int width, bool whole = false) {
  SumWalk walk{};
  walk.kept_rank = plan.kept_rank;
  walk.summed_rank = plan.summed_rank;
  walk.row = plan.row;
  std::int64_t kept = 1, summed = 1;
  for (int d = 0; d < plan.kept_rank + plan.summed_rank; ++d) {
    const auto dim = static_cast<std::size_t>(d);
    (d < plan.kept_rank ? kept : summed) *= plan.dims[dim];
    walk.dims[d] = Divisor(static_cast<std::uint32_t>(plan.dims[dim]));
    walk.dy_strides[d] = plan.dy_strides[dim];
    walk.grad_strides[d] = plan.grad_strides[dim];
    walk.other_strides[d] = plan.other_strides[dim];
  }
  const std::int64_t packs = plan.row / width, items = plan.row_is_summed ? summed * packs : summed;
  require(kept < (std::int64_t{1} << 31) && items < (std::int64_t{1} << 30), "binary_backward: too many elements");
  walk.packs_per_row = Divisor(static_cast<std::uint32_t>(packs));
  walk.other_row_step = plan.other_row_step;
  walk.elements = plan.elements;
  walk.items = static_cast<std::uint32_t>(items);
  walk.kept = static_cast<std::uint32_t>(kept);
  walk.column_tiles = 1;
  walk.threads = kThreads;
  if (!plan.row_is_summed) {
    const PixelSums sums(kept, items, packs, width == 1 ? 16 : 4);
    if (whole || sums.is_short) {
      walk.lanes = sums.lanes;
      walk.threads = sums.threads;
      walk.items_per_chunk = walk.items;
      walk.chunks = 1;
    } else {
      walk.lanes = 1;
      while (walk.lanes < 32 && walk.lanes < packs) walk.lanes *= 2;
      cut(walk, kept * parts(packs, walk.lanes), kThreads / walk.lanes);
    }
    walk.column_tiles = static_cast<std::uint32_t>(parts(packs, walk.lanes));
  } else if (kept >= kEnoughBlocks && items <= 32 * 64) {  // many short sums: a warp each
    walk.lanes = 32;
    walk.items_per_chunk = walk.items;
    walk.chunks = 1;
  } else {
    walk.lanes = kThreads;
    cut(walk, kept, kThreads);
  }
  return walk;
}

// The second phase as a plan: partials [chunks, elements] summed over the chunks.
BinaryGradPlan combine_plan(std::int64_t chunks, std::int64_t elements) {
  BinaryGradPlan plan{};
  plan.row = plan.elements = elements;
  plan.summed_rank = 1;
  plan.dims[0] = chunks;
  plan.dy_strides[0] = elements;
  return plan;
}

template <bool has_other, int width, class T, class Out>
void launch(cudaStream_t stream, bool row_is_summed, const SumWalk& walk, const T* dy, const T* other, Out* out,
            float scale) {
  constexpr const char* name = "binary_backward";
  if (row_is_summed) {
    const unsigned blocks = grid_blocks(name, parts(walk.kept, kThreads / walk.lanes) * walk.chunks);
    sum_rows_kernel<has_other, width><<<blocks, kThreads, 0, stream>>>(walk, dy, other, out, scale);
  } else {
    const unsigned blocks = grid_blocks(name, std::int64_t{walk.kept} * walk.chunks * walk.column_tiles);
    const auto run = [&](auto threads) {
      sum_columns_kernel<has_other, width, threads><<<blocks, threads.value, 0, stream>>>(walk, dy, other, out, scale);
    };
    walk.threads == kThreads ? run(std::integral_constant<int, kThreads>{})
                             : run(std::integral_constant<int, kMostSumThreads>{});
  }
  check_launch(name);
}

template <bool has_other, int width, class T>
void sum(cudaStream_t stream, const BinaryGradPlan& plan, const T* dy, const T* other, T* grad, float* partials) {
  const SumWalk walk = make_walk(plan, width);
  if (walk.chunks == 1) {
    launch<has_other, width>(stream, plan.row_is_summed, walk, dy, other, grad, plan.scale);
    return;
  }
  launch<has_other, width>(stream, plan.row_is_summed, walk, dy, other, partials, 1.0f);
  const BinaryGradPlan combine = combine_plan(walk.chunks, plan.elements);
  const auto run = [&](auto combine_width) {
    const SumWalk second = make_walk(combine, combine_width, true);
    launch<false, combine_width>(stream, false, second, static_cast<const float*>(partials),
                                 static_cast<const float*>(partials), grad, plan.scale);
  };
  plan.elements % 4 == 0 ? run(std::integral_constant<int, 4>{}) : run(std::integral_constant<int, 1>{});
}

struct ScaleBy {
  float scale;
  __device__ float operator()(float x) const { return scale * x; }
};

}  // namespace

template <class T>
std::size_t binary_backward_scratch_bytes(const BinaryGradPlan& plan) {
  if (!plan.sums) return 0;
  // The other operand, unknown here, may forbid packs: enough for either way.
  std::int64_t chunks = 1;
  for (const int width : {1, kPackWidth<T>}) {
    if (plan.row % width == 0) chunks = std::max<std::int64_t>(chunks, make_walk(plan, width).chunks);
  }
  return chunks == 1 ? 0 : static_cast<std::size_t>(chunks * plan.elements) * sizeof(float);
}

template <class T>
void binary_backward(cudaStream_t stream, const BinaryGradPlan& plan, const T* dy, const T* other, T* grad,
                     void* scratch) {
  if (!plan.sums && other != nullptr) {
    binary_forward(stream, BinaryOp::mul, plan.product, dy, other, grad);
    return;
  }
  if (!plan.sums) {
    if (plan.scale != 1.0f || grad != dy) map(stream, "binary_backward", ScaleBy{plan.scale}, dy, grad, plan.elements);
    return;
  }
  require_aligned("binary_backward", {dy, other, grad, scratch});
  auto* partials = static_cast<float*>(scratch);
  constexpr int width = kPackWidth<T>;
  const bool packs = splits(plan, other != nullptr, width);
  if (other == nullptr) {
    packs ? sum<false, width>(stream, plan, dy, dy, grad, partials)
          : sum<false, 1>(stream, plan, dy, dy, grad, partials);
  } else {
    packs ? sum<true, width>(stream, plan, dy, other, grad, partials)
          : sum<true, 1>(stream, plan, dy, other, grad, partials);
  }
}

template std::size_t binary_backward_scratch_bytes<float>(const BinaryGradPlan&);
template std::size_t binary_backward_scratch_bytes<bf16>(const BinaryGradPlan&);
template void binary_backward(cudaStream_t, const BinaryGradPlan&, const float*, const float*, float*, void*);
template void binary_backward(cudaStream_t, const BinaryGradPlan&, const bf16*, const bf16*, bf16*, void*);

}  // namespace overtake::cuda
