#pragma once
// What a task's operands and attributes are in the terms of kernels: the same for every backend.

#include <cstdint>
#include <string_view>
#include <vector>

#include "exec/task_view.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/adaptive_pool.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/binary.h"
#include "kernels/cpu/chain.h"
#include "kernels/cpu/conv_shape.h"
#include "kernels/cpu/group_norm.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/lstm.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/move.h"
#include "kernels/cpu/pool.h"
#include "ops/conv2d.h"

namespace overtake {

// The kernel's name of a function named in a task's attributes.
kernels::Activation activation_from_name(std::string_view name);
// The same with its parameters.
kernels::ActivationFunction activation_function(const Attrs& attrs);
kernels::ChainProgram chain_program(const TaskView& v);

// y = a op b with broadcasting, and the gradient of an operand: reads dy, other?; the shape of what is written says
// what is summed.
kernels::BinaryPlan binary_plan(const TaskView& v);
kernels::BinaryGradPlan binary_grad_plan(const TaskView& v, kernels::BinaryOp op);
// Expand and reduce; which way numbers go is said by the op alone: each is the gradient of the other.
kernels::BinaryPlan expand_plan(const TaskView& v);
kernels::BinaryGradPlan reduce_plan(const TaskView& v);

// The sums of the columns of a matrix [rows, columns].
kernels::BinaryGradPlan column_sum_plan(std::int64_t rows, std::int64_t columns);

// A tensor seen as [outer, axis, inner] in memory.
struct AxisView {
  std::int64_t outer = 1, axis = 1, inner = 1;
};
AxisView along(const Buffer& b, std::int64_t axis);

kernels::PermutePlan transpose_plan(const TaskView& v);

// Rows of a tensor whose last dimension is the width, and pixels of an image.
std::int64_t rows_of(const Buffer& b);
std::int64_t pixels_of(const Buffer& image);

// y = scale * op(a) op(b), all leading dimensions in `batch`, dense.
kernels::MatmulShape matmul_shape(const TaskView& v);

kernels::AttentionShape attention_shape(const TaskView& v);
// Packed: query, key and value lie side by side in one tensor, and so do their gradients.
template <class T>
kernels::AttentionInputs<T> attention_inputs(const TaskView& v) {
  const T* q = v.in<T>(0);
  const std::int64_t width = v.read(0).shape[2] / 3;
  const auto* mask = v.in<std::uint8_t>(3);
  if (v.has_read(1)) return {q, v.in<T>(1), v.in<T>(2), mask};
  return {q, q + width, q + 2 * width, mask};
}
template <class T>
kernels::AttentionGrads<T> attention_grads(const TaskView& v, const kernels::AttentionShape& s) {
  T* dq = v.out<T>(0);
  kernels::AttentionGrads<T> grads{dq, v.out<T>(1), v.out<T>(2), s.q_stride, s.k_stride, s.v_stride};
  if (v.has_write(1)) return grads;
  grads.dk = dq + s.heads * s.head_dim;
  grads.dv = dq + 2 * s.heads * s.head_dim;
  return grads;
}

kernels::RnnShape rnn_shape(const TaskView& v);
kernels::PoolShape pool_shape(const TaskView& v);
// Of one image; the batch is the first dimension of what is read.
kernels::AdaptivePoolShape adaptive_pool_shape(const TaskView& v);
kernels::GroupNormShape group_norm_shape(const TaskView& v);
// Where a batch norm reads the moments of all replicas, and of how many they are.
inline constexpr std::size_t kMoments = 6;
std::int64_t members_of_moments(const TaskView& v);
kernels::CrossEntropy cross_entropy_of(const TaskView& v);
// The row of an embedding's table that gathering does not train; -1: none.
std::int32_t padding_row(const TaskView& v);

// With so many images of the batch.
kernels::ConvShape conv_shape(const Graph& graph, const Task& task, std::int64_t images);

// Moves work on activations and, unchanged, on token ids.
template <class Body>
auto with_movable_type(DType dtype, Body&& body) {
  if (dtype == DType::i32) return body(std::int32_t{});
  return with_type(dtype, body);
}

}  // namespace overtake
