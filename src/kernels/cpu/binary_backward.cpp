#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/cpu/binary.h"
#include "kernels/cpu/block.h"
#include "kernels/cpu/blocked_sum.h"

namespace overtake::kernels {

namespace {

constexpr std::int64_t kRowBlock = 4096;
constexpr std::int64_t kColumnBlock = 2048;
constexpr std::int64_t kShortRow = 32;
constexpr std::int64_t kRowGroup = 64;
constexpr std::int64_t kChunkElements = 65536;  // a chunk is worth a task
constexpr std::int64_t kMaxChunks = 64;

// Offsets of a place in dy, the gradient and the other operand.
struct Offsets {
  std::int64_t dy = 0, grad = 0, other = 0;
};

// Offsets of index `flat` among dims [first, last) of the plan.
Offsets offsets_at(const BinaryGradPlan& plan, int first, int last, std::int64_t flat) {
  Offsets at;
  for (int d = last - 1; d >= first; --d) {
    const auto dim = static_cast<std::size_t>(d);
    const std::int64_t i = d == first ? flat : flat % plan.dims[dim];
    if (d != first) flat /= plan.dims[dim];
    at.dy += i * plan.dy_strides[dim];
    at.grad += i * plan.grad_strides[dim];
    at.other += i * plan.other_strides[dim];
  }
  return at;
}

// The factor that dy[i] gets from the other operand.
struct NoFactor {
  template <class T>
  static float at(const T*, std::int64_t, std::int64_t) {
    return 1.0f;
  }
};
struct ScalarFactor {
  template <class T>
  static float at(const T* other, std::int64_t, std::int64_t) {
    return to_float(*other);
  }
};
struct UnitFactor {
  template <class T>
  static float at(const T* other, std::int64_t i, std::int64_t) {
    return to_float(other[i]);
  }
};
struct StridedFactor {
  template <class T>
  static float at(const T* other, std::int64_t i, std::int64_t step) {
    return to_float(other[i * step]);
  }
};

// sum [size] += `rows` (1 or 4) rows of dy * factor; with four, pairs are added first.
template <class Factor, int rows, class T>
void add_rows(const std::array<const T*, 4>& dy, const std::array<const T*, 4>& other, std::int64_t step, float* sum,
              std::int64_t size) {
  const T *dy0 = dy[0], *dy1 = dy[1], *dy2 = dy[2], *dy3 = dy[3];
  const T *other0 = other[0], *other1 = other[1], *other2 = other[2], *other3 = other[3];
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) {
    float first = to_float(dy0[i]) * Factor::at(other0, i, step);
    if constexpr (rows == 4) {
      first += to_float(dy1[i]) * Factor::at(other1, i, step);
      float second = to_float(dy2[i]) * Factor::at(other2, i, step);
      second += to_float(dy3[i]) * Factor::at(other3, i, step);
      first += second;
    }
    sum[i] += first;
  }
}

// sum [size] = sum over the pieces (rows) [begin, end) of dy * factor; dy, other: start of the kept row. Rows are added
// up in groups and the groups after that, for accuracy. Short rows go four at a time; long ones singly, in the order of
// memory, which prefetching likes.
template <class Factor, class T>
void sum_columns(const BinaryGradPlan& plan, const T* dy, const T* other, float* sum, std::int64_t size,
                 std::int64_t begin, std::int64_t end) {
  const int last = plan.kept_rank + plan.summed_rank;
  const std::int64_t step = plan.other_row_step;
  const std::size_t together = size <= kShortRow ? 4 : 1;
  float group[kColumnBlock];
  std::fill(sum, sum + size, 0.0f);
  for (std::int64_t first = begin; first < end; first += kRowGroup) {
    std::fill(group, group + size, 0.0f);
    std::array<const T*, 4> dy_rows{}, other_rows{};
    std::size_t held = 0;
    const auto add_held = [&] {
      for (std::size_t i = 0; i < held; ++i) add_rows<Factor, 1, T>({dy_rows[i]}, {other_rows[i]}, step, group, size);
      held = 0;
    };
    for (std::int64_t piece = first; piece < std::min(end, first + kRowGroup); ++piece) {
      const Offsets at = offsets_at(plan, plan.kept_rank, last, piece);
      dy_rows[held] = dy + at.dy;
      other_rows[held] = other + at.other;
      if (++held < together) continue;
      if (held == 4) {
        add_rows<Factor, 4, T>(dy_rows, other_rows, step, group, size);
        held = 0;
      } else {
        add_held();
      }
    }
    add_held();
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) sum[i] += group[i];
  }
}

// Sum over the pieces (blocks of rows) [begin, end) of dy * factor; dy, other: start of the kept element.
template <class Factor, class T>
double sum_rows(const BinaryGradPlan& plan, const T* dy, const T* other, std::int64_t begin, std::int64_t end) {
  const std::int64_t blocks = parts_of(plan.row, kRowBlock), step = plan.other_row_step;
  double sum = 0;
  for (std::int64_t piece = begin; piece < end; ++piece) {
    const Offsets at = offsets_at(plan, plan.kept_rank, plan.kept_rank + plan.summed_rank, piece / blocks);
    const std::int64_t first = piece % blocks * kRowBlock;
    const std::int64_t size = std::min(kRowBlock, plan.row - first);
    const T* dy_row = dy + at.dy + first;
    const T* other_row = other + at.other + first * step;
    sum += blocked_sum(size, [=](std::int64_t i) { return to_float(dy_row[i]) * Factor::at(other_row, i, step); });
  }
  return sum;
}

// Unit (k * chunks + chunk) * column_blocks + column block.
template <class Factor, class T>
void backward_units(const BinaryGradPlan& plan, const T* dy, const T* other, T* grad, float* partials,
                    std::int64_t begin, std::int64_t end) {
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t column = unit % plan.column_blocks * kColumnBlock;
    const std::int64_t chunk = unit / plan.column_blocks % plan.chunks;
    const Offsets at = offsets_at(plan, 0, plan.kept_rank, unit / plan.column_blocks / plan.chunks);
    const std::int64_t first = chunk * plan.pieces_per_chunk;
    const std::int64_t last = std::min(plan.pieces, first + plan.pieces_per_chunk);
    const std::int64_t size = plan.row_is_summed ? 1 : std::min(kColumnBlock, plan.row - column);

    float sum[kColumnBlock];
    if (plan.row_is_summed) {
      sum[0] = static_cast<float>(sum_rows<Factor>(plan, dy + at.dy, other + at.other, first, last));
    } else {
      sum_columns<Factor>(plan, dy + at.dy + column, other + at.other + column * plan.other_row_step, sum, size, first,
                          last);
    }
    if (plan.chunks > 1) {
      std::copy(sum, sum + size, partials + chunk * plan.elements + at.grad + column);
    } else {
      T* out = grad + at.grad + column;
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) out[i] = from_float<T>(plan.scale * sum[i]);
    }
  }
}

// Fills in the joined dims: kept, then summed, then the row.
void join_dims(BinaryGradPlan& plan, std::span<const std::int64_t> dims, std::span<const std::int64_t> operand_strides,
               std::span<const std::int64_t> other_strides) {
  struct Dim {
    std::int64_t extent, dy, grad, other;
  };
  std::array<Dim, kMaxRank> joined{};
  std::size_t rank = 0;
  std::int64_t dy_stride = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {  // innermost first
    OVERTAKE_CHECK(dims[d] > 0, "gradient of a binary op on an empty tensor: dim {} is {}", d, dims[d]);
    const Dim dim{dims[d], dy_stride, operand_strides[d], other_strides.empty() ? 0 : other_strides[d]};
    dy_stride *= dims[d];
    if (dim.extent == 1) continue;
    if (rank > 0) {
      Dim& inner = joined[rank - 1];
      if (dim.grad == inner.extent * inner.grad && dim.other == inner.extent * inner.other) {
        inner.extent *= dim.extent;
        continue;
      }
    }
    joined[rank++] = dim;
  }
  if (rank == 0) joined[rank++] = Dim{1, 1, 1, other_strides.empty() ? 0 : 1};  // a single element

  plan.row = joined[0].extent;
  plan.other_row_step = joined[0].other;
  plan.row_is_summed = joined[0].grad == 0;
  OVERTAKE_CHECK(joined[0].grad <= 1, "the operand of a gradient is not contiguous: row stride {}", joined[0].grad);
  std::size_t next = 0;
  for (const bool summed : {false, true}) {
    for (std::size_t d = rank; d-- > 1;) {
      if ((joined[d].grad == 0) != summed) continue;
      plan.dims[next] = joined[d].extent;
      plan.dy_strides[next] = joined[d].dy;
      plan.grad_strides[next] = joined[d].grad;
      plan.other_strides[next] = joined[d].other;
      ++next;
      ++(summed ? plan.summed_rank : plan.kept_rank);
    }
  }
}

// Cuts the work: many kept rows or columns are parallel enough; else the sum is cut in chunks.
void cut_work(BinaryGradPlan& plan) {
  std::int64_t kept_rows = 1, summed_rows = 1;
  for (int d = 0; d < plan.kept_rank; ++d) kept_rows *= plan.dims[static_cast<std::size_t>(d)];
  for (int d = plan.kept_rank; d < plan.kept_rank + plan.summed_rank; ++d) {
    summed_rows *= plan.dims[static_cast<std::size_t>(d)];
  }
  plan.pieces = plan.row_is_summed ? summed_rows * parts_of(plan.row, kRowBlock) : summed_rows;
  plan.column_blocks = plan.row_is_summed ? 1 : parts_of(plan.row, kColumnBlock);
  plan.elements = plan.row_is_summed ? kept_rows : kept_rows * plan.row;

  const bool parallel_enough = kept_rows * plan.column_blocks >= kMaxChunks && plan.pieces <= kChunkElements;
  const std::int64_t piece = plan.row_is_summed ? std::min(plan.row, kRowBlock) : plan.row;
  plan.pieces_per_chunk =
      parallel_enough
          ? plan.pieces
          : std::max({std::int64_t{16}, parts_of(kChunkElements, piece), parts_of(plan.pieces, kMaxChunks)});
  plan.chunks = parts_of(plan.pieces, plan.pieces_per_chunk);
  plan.partials = plan.chunks == 1 ? 0 : plan.chunks * plan.elements;
  plan.units = kept_rows * plan.chunks * plan.column_blocks;
  plan.combine_units = plan.chunks == 1 ? 0 : blocks_of(plan.elements);
}

}  // namespace

BinaryGradPlan make_binary_grad_plan(BinaryOp op, std::span<const std::int64_t> dims,
                                     std::span<const std::int64_t> operand_strides,
                                     std::span<const std::int64_t> other_strides) {
  OVERTAKE_CHECK(dims.size() <= static_cast<std::size_t>(kMaxRank) && operand_strides.size() == dims.size() &&
                     other_strides.size() == (op == BinaryOp::mul ? dims.size() : 0),
                 "gradient of a binary op of rank {} with {} and {} strides", dims.size(), operand_strides.size(),
                 other_strides.size());
  BinaryGradPlan plan{};
  join_dims(plan, dims, operand_strides, other_strides);
  cut_work(plan);
  plan.sums = plan.summed_rank > 0 || plan.row_is_summed;
  if (!plan.sums && op == BinaryOp::mul) {
    plan.product = make_binary_plan(dims, operand_strides, other_strides);
    plan.units = plan.product.units;
  } else if (!plan.sums) {
    plan.units = blocks_of(plan.elements);
  }
  return plan;
}

template <class T>
void binary_backward(const BinaryGradPlan& plan, const T* dy, const T* other, T* grad, float* partials,
                     std::int64_t begin, std::int64_t end) {
  if (!plan.sums && other == nullptr) {
    const std::int64_t first = begin * kBlock, last = std::min(plan.elements, end * kBlock);
    if (plan.scale == 1.0f && grad == dy) return;
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i) grad[i] = from_float<T>(plan.scale * to_float(dy[i]));
  } else if (!plan.sums) {
    binary_forward(BinaryOp::mul, plan.product, dy, other, grad, begin, end);
  } else if (other == nullptr) {
    backward_units<NoFactor>(plan, dy, dy, grad, partials, begin, end);
  } else if (plan.other_row_step == 0) {
    backward_units<ScalarFactor>(plan, dy, other, grad, partials, begin, end);
  } else if (plan.other_row_step == 1) {
    backward_units<UnitFactor>(plan, dy, other, grad, partials, begin, end);
  } else {
    backward_units<StridedFactor>(plan, dy, other, grad, partials, begin, end);
  }
}

template <class T>
void binary_backward_combine(const BinaryGradPlan& plan, const float* partials, T* grad, std::int64_t block_begin,
                             std::int64_t block_end) {
  for_each_block(plan.elements, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    float sum[kBlock];
    std::copy(partials + first, partials + first + size, sum);
    for (std::int64_t chunk = 1; chunk < plan.chunks; ++chunk) {
      const float* term = partials + chunk * plan.elements + first;
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) sum[i] += term[i];
    }
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) grad[first + i] = from_float<T>(plan.scale * sum[i]);
  });
}

template void binary_backward(const BinaryGradPlan&, const float*, const float*, float*, float*, std::int64_t,
                              std::int64_t);
template void binary_backward(const BinaryGradPlan&, const bf16*, const bf16*, bf16*, float*, std::int64_t,
                              std::int64_t);
template void binary_backward_combine(const BinaryGradPlan&, const float*, float*, std::int64_t, std::int64_t);
template void binary_backward_combine(const BinaryGradPlan&, const float*, bf16*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
