#include "kernels/cpu/binary.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/block.h"

namespace overtake::kernels {

namespace {

constexpr std::int64_t kRowBlock = 4096;

struct Add {
  static float apply(float a, float b) { return a + b; }
};

struct Mul {
  static float apply(float a, float b) { return a * b; }
};

// y [size] = a op b with the given steps; the steps of every real broadcast are 0 and 1.
template <class Op, class T>
void combine_row(const T* a, std::int64_t a_step, const T* b, std::int64_t b_step, T* y, std::int64_t size) {
  if (a_step == 1 && b_step == 1) {
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) y[i] = from_float<T>(Op::apply(to_float(a[i]), to_float(b[i])));
  } else if (a_step == 1 && b_step == 0) {
    const float scalar = to_float(*b);
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) y[i] = from_float<T>(Op::apply(to_float(a[i]), scalar));
  } else if (a_step == 0 && b_step == 1) {
    const float scalar = to_float(*a);
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) y[i] = from_float<T>(Op::apply(scalar, to_float(b[i])));
  } else {
    for (std::int64_t i = 0; i < size; ++i) {
      y[i] = from_float<T>(Op::apply(to_float(a[i * a_step]), to_float(b[i * b_step])));
    }
  }
}

// y [size] = scale * x with the given step.
template <class T>
void scale_row(const T* x, std::int64_t step, float scale, T* y, std::int64_t size) {
  if (step == 1) {
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) y[i] = from_float<T>(scale * to_float(x[i]));
  } else if (step == 0) {
    std::fill(y, y + size, from_float<T>(scale * to_float(*x)));
  } else {
    for (std::int64_t i = 0; i < size; ++i) y[i] = from_float<T>(scale * to_float(x[i * step]));
  }
}

// Calls body(offset in a, offset in b, offset in y, size) for each unit, a block of a row.
template <class Body>
void for_each_unit(const BinaryPlan& plan, std::int64_t begin, std::int64_t end, const Body& body) {
  const std::size_t last = static_cast<std::size_t>(plan.rank - 1);
  const std::int64_t row = plan.dims[last];
  std::array<std::int64_t, kMaxRank> at{};  // index of the current row in the outer dims
  std::int64_t rest = begin / plan.blocks_per_row, a_offset = 0, b_offset = 0;
  std::int64_t y_offset = rest * row;
  for (std::size_t d = last; d-- > 0;) {
    at[d] = rest % plan.dims[d];
    rest /= plan.dims[d];
    a_offset += at[d] * plan.a_strides[d];
    b_offset += at[d] * plan.b_strides[d];
  }
  std::int64_t block = begin % plan.blocks_per_row;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t first = block * kRowBlock;
    const std::int64_t size = std::min(kRowBlock, row - first);
    body(a_offset + first * plan.a_strides[last], b_offset + first * plan.b_strides[last], y_offset + first, size);
    if (++block < plan.blocks_per_row) continue;
    block = 0;
    y_offset += row;
    for (std::size_t d = last; d-- > 0;) {
      a_offset += plan.a_strides[d];
      b_offset += plan.b_strides[d];
      if (++at[d] < plan.dims[d]) break;
      a_offset -= plan.dims[d] * plan.a_strides[d];
      b_offset -= plan.dims[d] * plan.b_strides[d];
      at[d] = 0;
    }
  }
}

template <class Op, class T>
void forward_units(const BinaryPlan& plan, const T* a, const T* b, T* y, std::int64_t begin, std::int64_t end) {
  const auto last = static_cast<std::size_t>(plan.rank - 1);
  const std::int64_t a_step = plan.a_strides[last], b_step = plan.b_strides[last];
  for_each_unit(plan, begin, end,
                [&](std::int64_t a_offset, std::int64_t b_offset, std::int64_t y_offset, std::int64_t size) {
                  combine_row<Op>(a + a_offset, a_step, b + b_offset, b_step, y + y_offset, size);
                });
}

}  // namespace

BinaryPlan make_binary_plan(std::span<const std::int64_t> dims, std::span<const std::int64_t> a_strides,
                            std::span<const std::int64_t> b_strides) {
  OVERTAKE_CHECK(dims.size() <= static_cast<std::size_t>(kMaxRank) && a_strides.size() == dims.size() &&
                     b_strides.size() == dims.size(),
                 "binary op of rank {} with {} and {} strides", dims.size(), a_strides.size(), b_strides.size());
  BinaryPlan plan{};
  std::size_t rank = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    OVERTAKE_CHECK(dims[d] > 0, "binary op on an empty tensor: dim {} is {}", d, dims[d]);
    if (dims[d] == 1) continue;
    const bool joins = rank > 0 && plan.a_strides[rank - 1] == dims[d] * a_strides[d] &&
                       plan.b_strides[rank - 1] == dims[d] * b_strides[d];
    if (!joins) plan.dims[rank++] = 1;
    plan.dims[rank - 1] *= dims[d];
    plan.a_strides[rank - 1] = a_strides[d];
    plan.b_strides[rank - 1] = b_strides[d];
  }
  if (rank == 0) {  // a single element
    plan.dims[0] = plan.a_strides[0] = plan.b_strides[0] = 1;
    rank = 1;
  }
  plan.rank = static_cast<int>(rank);
  plan.blocks_per_row = parts_of(plan.dims[rank - 1], kRowBlock);
  plan.units = plan.blocks_per_row;
  for (std::size_t d = 0; d + 1 < rank; ++d) plan.units *= plan.dims[d];
  return plan;
}

template <class T>
void binary_forward(BinaryOp op, const BinaryPlan& plan, const T* a, const T* b, T* y, std::int64_t begin,
                    std::int64_t end) {
  if (op == BinaryOp::add) {
    forward_units<Add>(plan, a, b, y, begin, end);
  } else {
    forward_units<Mul>(plan, a, b, y, begin, end);
  }
}

template <class T>
void expand(const BinaryPlan& plan, float scale, const T* x, T* y, std::int64_t begin, std::int64_t end) {
  const std::int64_t step = plan.a_strides[static_cast<std::size_t>(plan.rank - 1)];
  for_each_unit(plan, begin, end, [&](std::int64_t x_offset, std::int64_t, std::int64_t y_offset, std::int64_t size) {
    scale_row(x + x_offset, step, scale, y + y_offset, size);
  });
}

template <class T>
void sum_n(std::span<const T* const> in, T* out, std::int64_t count, std::int64_t block_begin, std::int64_t block_end) {
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    if (in.size() == 2) {
      combine_row<Add>(in[0] + first, 1, in[1] + first, 1, out + first, size);
      return;
    }
    float sum[kBlock];
    const T* term = in[0] + first;
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) sum[i] = to_float(term[i]);
    for (std::size_t k = 1; k < in.size(); ++k) {
      term = in[k] + first;
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) sum[i] += to_float(term[i]);
    }
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) out[first + i] = from_float<T>(sum[i]);
  });
}

template <class A, class Out>
void add_bf16(const A* a, const bf16* b, Out* out, std::int64_t count, std::int64_t block_begin,
              std::int64_t block_end) {
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
#pragma omp simd
    for (std::int64_t i = first; i < first + size; ++i) out[i] = from_float<Out>(to_float(a[i]) + to_float(b[i]));
  });
}

template void binary_forward(BinaryOp, const BinaryPlan&, const float*, const float*, float*, std::int64_t,
                             std::int64_t);
template void binary_forward(BinaryOp, const BinaryPlan&, const bf16*, const bf16*, bf16*, std::int64_t, std::int64_t);
template void expand(const BinaryPlan&, float, const float*, float*, std::int64_t, std::int64_t);
template void expand(const BinaryPlan&, float, const bf16*, bf16*, std::int64_t, std::int64_t);
template void sum_n(std::span<const float* const>, float*, std::int64_t, std::int64_t, std::int64_t);
template void sum_n(std::span<const bf16* const>, bf16*, std::int64_t, std::int64_t, std::int64_t);
template void add_bf16(const float*, const bf16*, float*, std::int64_t, std::int64_t, std::int64_t);
template void add_bf16(const float*, const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t);
template void add_bf16(const bf16*, const bf16*, float*, std::int64_t, std::int64_t, std::int64_t);
template void add_bf16(const bf16*, const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
