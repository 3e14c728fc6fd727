#include <algorithm>

#include "kernels/cuda/binary.h"
#include "kernels/cuda/map.cuh"

namespace overtake::cuda {

namespace {

using namespace access;

// How many inputs a kernel's arguments hold.
constexpr int kFewTerms = 8, kMaxTerms = 128;

struct Add {
  static constexpr bool kTwo = true;
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Mul {
  static constexpr bool kTwo = true;
  __device__ float operator()(float a, float b) const { return a * b; }
};

struct Scale {
  static constexpr bool kTwo = false;
  float scale;
  __device__ float operator()(float a, float) const { return scale * a; }
};

// A BinaryPlan with the last dim counted in packs.
struct Walk {
  int rank;
  Divisor dims[kernels::kMaxRank];
  std::int64_t a_strides[kernels::kMaxRank], b_strides[kernels::kMaxRank];  // in elements
  bool a_is_row, b_is_row;  // whether the operand is contiguous along the last dim (else constant, in packs)
};

// The pack of an operand: neighbours, or one element repeated.
template <int width, class T>
__device__ Pack<T, width> load_operand(const T* from, bool is_row) {
  if constexpr (width > 1) {
    if (!is_row) {
      Pack<T, width> pack;
      const T element = *from;
#pragma unroll
      for (int i = 0; i < width; ++i) pack.at[i] = element;
      return pack;
    }
  }
  return load_pack<width>(from);
}

template <class Op, int width, class T>
__global__ void __launch_bounds__(kMapThreads)
    broadcast_kernel(Op op, const __grid_constant__ Walk walk, const T* a, const T* b, T* y, std::uint32_t packs) {
  const std::uint32_t first = blockIdx.x * (kMapThreads * kMapPacks) + threadIdx.x;
  Pack<T, width> x[kMapPacks], z[kMapPacks];
#pragma unroll
  for (int k = 0; k < kMapPacks; ++k) {
    const std::uint32_t index = first + k * kMapThreads;
    if (index >= packs) continue;
    std::uint32_t rest = index;
    std::int64_t a_offset = 0, b_offset = 0;
    for (int d = walk.rank - 1; d > 0; --d) {
      const auto [quotient, at] = walk.dims[d].divide(rest);
      rest = quotient;
      a_offset += at * walk.a_strides[d];
      if constexpr (Op::kTwo) b_offset += at * walk.b_strides[d];
    }
    x[k] = load_operand<width>(a + a_offset + rest * walk.a_strides[0], walk.a_is_row);
    if constexpr (Op::kTwo) z[k] = load_operand<width>(b + b_offset + rest * walk.b_strides[0], walk.b_is_row);
  }
#pragma unroll
  for (int k = 0; k < kMapPacks; ++k) {
    const std::uint32_t index = first + k * kMapThreads;
    if (index >= packs) continue;
    Pack<T, width> result;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float right = Op::kTwo ? widen(z[k].at[i]) : 0.0f;
      result.at[i] = narrow<T>(op(widen(x[k].at[i]), right));
    }
    store_pack(y + static_cast<std::int64_t>(index) * width, result);
  }
}

// Whether packs of `width` along the last dim are packs of an operand with these strides, too.
bool splits(const BinaryPlan& plan, const std::array<std::int64_t, kernels::kMaxRank>& strides, int width) {
  const auto last = static_cast<std::size_t>(plan.rank - 1);
  if (strides[last] == 0) return true;
  if (strides[last] != 1) return false;
  return std::all_of(strides.begin(), strides.begin() + plan.rank - 1, [&](std::int64_t s) { return s % width == 0; });
}

template <int width, class Op, class T>
void launch_broadcast(cudaStream_t stream, const char* name, Op op, const BinaryPlan& plan, const T* a, const T* b,
                      T* y) {
  Walk walk{};
  walk.rank = plan.rank;
  std::int64_t packs = 1;
  const auto last = static_cast<std::size_t>(plan.rank - 1);
  for (std::size_t d = 0; d <= last; ++d) {
    const int step = d == last ? width : 1;
    packs *= plan.dims[d] / step;
    require(packs < (std::int64_t{1} << 31), "binary op: more than 2^31 packs of elements");
    walk.dims[d] = Divisor(static_cast<std::uint32_t>(plan.dims[d] / step));
    walk.a_strides[d] = plan.a_strides[d] * step;
    walk.b_strides[d] = plan.b_strides[d] * step;
  }
  walk.a_is_row = plan.a_strides[last] == 1;
  walk.b_is_row = plan.b_strides[last] == 1;
  const unsigned blocks = grid_blocks(name, parts(packs, kMapThreads * kMapPacks));
  broadcast_kernel<Op, width><<<blocks, kMapThreads, 0, stream>>>(op, walk, a, b, y, static_cast<std::uint32_t>(packs));
  check_launch(name);
}

template <class Op, class T>
void broadcast(cudaStream_t stream, const char* name, Op op, const BinaryPlan& plan, const T* a, const T* b, T* y) {
  require_aligned(name, {a, b, y});
  constexpr int width = kPackWidth<T>;
  const std::int64_t row = plan.dims[static_cast<std::size_t>(plan.rank - 1)];
  if (row % width == 0 && splits(plan, plan.a_strides, width) && splits(plan, plan.b_strides, width)) {
    launch_broadcast<width>(stream, name, op, plan, a, b, y);
  } else {
    launch_broadcast<1>(stream, name, op, plan, a, b, y);
  }
}

template <class T, int capacity>
struct Terms {
  const T* at[capacity];
};

template <class T, int capacity>
__global__ void __launch_bounds__(kMapThreads)
    sum_n_kernel(const __grid_constant__ Terms<T, capacity> in, int terms, T* out, std::int64_t count) {
  constexpr int width = kPackWidth<T>, step = kMapThreads * width;
  const std::int64_t tile = std::int64_t{blockIdx.x} * (step * kMapPacks);
  if (tile + step * kMapPacks <= count) {
    const std::int64_t first = tile + threadIdx.x * width;
    float sum[kMapPacks][width];
    for (int t = 0; t < terms; ++t) {
      Pack<T, width> x[kMapPacks];
#pragma unroll
      for (int k = 0; k < kMapPacks; ++k) x[k] = load_pack<width>(in.at[t] + first + k * step);
#pragma unroll
      for (int k = 0; k < kMapPacks; ++k) {
#pragma unroll
        for (int i = 0; i < width; ++i) sum[k][i] = t == 0 ? widen(x[k].at[i]) : sum[k][i] + widen(x[k].at[i]);
      }
    }
#pragma unroll
    for (int k = 0; k < kMapPacks; ++k) {
      Pack<T, width> y;
#pragma unroll
      for (int i = 0; i < width; ++i) y.at[i] = narrow<T>(sum[k][i]);
      store_pack(out + first + k * step, y);
    }
  } else {
    const std::int64_t end = min(count, tile + step * kMapPacks);
    for (std::int64_t i = tile + threadIdx.x; i < end; i += kMapThreads) {
      float sum = widen(in.at[0][i]);
      for (int t = 1; t < terms; ++t) sum += widen(in.at[t][i]);
      out[i] = narrow<T>(sum);
    }
  }
}

template <int capacity, class T>
void launch_sum_n(cudaStream_t stream, std::span<const T* const> in, T* out, std::int64_t count) {
  Terms<T, capacity> terms{};
  std::copy(in.begin(), in.end(), terms.at);
  const unsigned blocks = grid_blocks("sum_n", parts(count, kMapThreads * kMapPacks * kPackWidth<T>));
  sum_n_kernel<<<blocks, kMapThreads, 0, stream>>>(terms, static_cast<int>(in.size()), out, count);
  check_launch("sum_n");
}

}  // namespace

template <class T>
void binary_forward(cudaStream_t stream, BinaryOp op, const BinaryPlan& plan, const T* a, const T* b, T* y) {
  const auto run = [&](auto function, const char* name) {
    if (plan.rank == 1 && plan.a_strides[0] == 1 && plan.b_strides[0] == 1) {
      map2(stream, name, function, a, b, y, plan.dims[0]);
    } else {
      broadcast(stream, name, function, plan, a, b, y);
    }
  };
  op == BinaryOp::add ? run(Add{}, "add") : run(Mul{}, "mul");
}

template <class T>
void expand(cudaStream_t stream, const BinaryPlan& plan, float scale, const T* x, T* y) {
  broadcast(stream, "expand", Scale{scale}, plan, x, x, y);
}

template <class T>
void sum_n(cudaStream_t stream, std::span<const T* const> in, T* out, std::int64_t count) {
  require(!in.empty() && in.size() <= kMaxTerms, "sum_n: no input, or more than 128");
  if (count == 0) return;
  for (const T* term : in) require_aligned("sum_n", {term});
  require_aligned("sum_n", {out});
  if (in.size() == 2) {
    map2(stream, "sum_n", Add{}, in[0], in[1], out, count);
  } else if (in.size() <= kFewTerms) {
    launch_sum_n<kFewTerms>(stream, in, out, count);
  } else {
    launch_sum_n<kMaxTerms>(stream, in, out, count);
  }
}

template <class A, class Out>
void add_bf16(cudaStream_t stream, const A* a, const bf16* b, Out* out, std::int64_t count) {
  map2(stream, "add_bf16", Add{}, a, b, out, count);
}

template void binary_forward(cudaStream_t, BinaryOp, const BinaryPlan&, const float*, const float*, float*);
template void binary_forward(cudaStream_t, BinaryOp, const BinaryPlan&, const bf16*, const bf16*, bf16*);
template void expand(cudaStream_t, const BinaryPlan&, float, const float*, float*);
template void expand(cudaStream_t, const BinaryPlan&, float, const bf16*, bf16*);
template void sum_n(cudaStream_t, std::span<const float* const>, float*, std::int64_t);
template void sum_n(cudaStream_t, std::span<const bf16* const>, bf16*, std::int64_t);
template void add_bf16(cudaStream_t, const float*, const bf16*, float*, std::int64_t);
template void add_bf16(cudaStream_t, const float*, const bf16*, bf16*, std::int64_t);
template void add_bf16(cudaStream_t, const bf16*, const bf16*, float*, std::int64_t);
template void add_bf16(cudaStream_t, const bf16*, const bf16*, bf16*, std::int64_t);

}  // namespace overtake::cuda
