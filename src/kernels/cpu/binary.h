#pragma once
// Sum and product of two tensors with broadcasting as in numpy, their gradients, broadcasting alone and its gradient,
// and sums of many equal tensors. T is float or bf16.

#include <array>
#include <cstdint>
#include <span>

#include "base/bf16.h"

namespace overtake::kernels {

enum class BinaryOp : std::uint8_t { add, mul };

inline constexpr int kMaxRank = 6;

// How to walk an output of up to 6 dims and its two operands. Dims of extent 1 are dropped and neighbours that all
// tensors traverse as one are joined. A stride, in elements, is 0 where the operand is broadcast.
struct BinaryPlan {
  int rank;                                      // >= 1; the last dim is the row
  std::array<std::int64_t, kMaxRank> dims;       // of the output, which is contiguous
  std::array<std::int64_t, kMaxRank> a_strides;  // of the first operand
  std::array<std::int64_t, kMaxRank> b_strides;  // of the second
  std::int64_t blocks_per_row;                   // a long row is cut in blocks of 4096
  std::int64_t units;                            // rows * blocks_per_row: the unit count of binary_forward
};

// Dims outermost first (physical order); all three of equal length <= 6.
BinaryPlan make_binary_plan(std::span<const std::int64_t> dims, std::span<const std::int64_t> a_strides,
                            std::span<const std::int64_t> b_strides);

// y = a op b; y [dims]. Unit: block of a row. May be in place over an operand that has y's shape.
template <class T>
void binary_forward(BinaryOp op, const BinaryPlan& plan, const T* a, const T* b, T* y, std::int64_t begin,
                    std::int64_t end);

// y = scale * x, broadcast; y [dims]. The plan is that of x as both operands. Unit: block of a row.
template <class T>
void expand(const BinaryPlan& plan, float scale, const T* x, T* y, std::int64_t begin, std::int64_t end);

// The gradient with respect to one operand: dy, times the other operand for mul, summed over the dims in which the
// operand is broadcast. Two phases: binary_backward adds up fixed chunks of the sum, binary_backward_combine adds the
// chunks. With chunks == 1 the first phase writes the gradient itself and there is no second. For add this is the sum
// of a tensor over any of its dims, too, times a scale.
struct BinaryGradPlan {
  // The last dim of dy, after joining, is the row; the other dims of dy are first those kept, then those summed.
  std::int64_t row;
  std::int64_t other_row_step;  // stride of the other operand along the row
  bool row_is_summed;
  int kept_rank, summed_rank;  // without the row
  std::array<std::int64_t, kMaxRank> dims;
  std::array<std::int64_t, kMaxRank> dy_strides;     // in elements
  std::array<std::int64_t, kMaxRank> grad_strides;   // 0 for summed dims
  std::array<std::int64_t, kMaxRank> other_strides;  // of the other operand; all 0 for add

  std::int64_t pieces;  // summands: rows or, if row_is_summed, blocks of 4096 of them
  std::int64_t pieces_per_chunk;
  std::int64_t chunks;
  std::int64_t column_blocks;  // a kept row is cut in blocks of 2048 columns
  std::int64_t elements;       // of the gradient
  std::int64_t partials;       // floats of scratch: chunks * elements, or 0 if chunks == 1
  std::int64_t units;          // unit count of binary_backward
  std::int64_t combine_units;  // unit count of binary_backward_combine; 0 if chunks == 1
  bool sums;                   // if false the gradient is dy or, for mul, the product dy * other:
  BinaryPlan product;
  float scale = 1.0f;  // of the sum; only for add
};

// The operand must be contiguous (operand_strides are those of a contiguous tensor, 0 where broadcast). For add the
// other operand does not matter: other_strides is empty.
BinaryGradPlan make_binary_grad_plan(BinaryOp op, std::span<const std::int64_t> dims,
                                     std::span<const std::int64_t> operand_strides,
                                     std::span<const std::int64_t> other_strides);

// dy [dims], other (null for add), grad [elements], partials [plan.partials] (null if chunks == 1). May be in place
// (grad == dy or grad == other) only if nothing is summed and that tensor has the shape of the gradient.
template <class T>
void binary_backward(const BinaryGradPlan& plan, const T* dy, const T* other, T* grad, float* partials,
                     std::int64_t begin, std::int64_t end);

// grad = sum of the chunks of partials, first to last. Unit: block of 1024 elements of the gradient.
template <class T>
void binary_backward_combine(const BinaryGradPlan& plan, const float* partials, T* grad, std::int64_t block_begin,
                             std::int64_t block_end);

// out = ((in[0] + in[1]) + in[2]) + ..., rounded to T once; out and each input [count]. Unit: block of 1024 elements.
// May be in place over any of the inputs.
template <class T>
void sum_n(std::span<const T* const> in, T* out, std::int64_t count, std::int64_t block_begin, std::int64_t block_end);

// out = a + b [count], where the sum so far or the result may be wider than what is added; units and places as of
// sum_n.
template <class A, class Out>
void add_bf16(const A* a, const bf16* b, Out* out, std::int64_t count, std::int64_t block_begin,
              std::int64_t block_end);

}  // namespace overtake::kernels
