#pragma once
// Sum and product of two tensors with broadcasting, their gradients, broadcasting alone and its gradient, and sums of
// many equal tensors, on the GPU: kernels/cpu/binary.h, whose plans these take. T is float or bf16. Calls only enqueue;
// arrays start at 16-byte boundaries.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bf16.h"
#include "kernels/cpu/binary.h"

namespace overtake::cuda {

using kernels::BinaryGradPlan;
using kernels::BinaryOp;
using kernels::BinaryPlan;

// y = a op b; y [dims]. May be in place over an operand that has y's shape.
template <class T>
void binary_forward(cudaStream_t stream, BinaryOp op, const BinaryPlan& plan, const T* a, const T* b, T* y);

// y = scale * x, broadcast; y [dims]. The plan is that of x as both operands.
template <class T>
void expand(cudaStream_t stream, const BinaryPlan& plan, float scale, const T* x, T* y);

// The gradient with respect to one operand, or (for add) the sum of a tensor over some of its dims times plan.scale: dy
// [dims], other (null for add), grad [elements]. Both phases of the CPU's; the cut of the sum in chunks is another one.
// May be in place (grad == dy or grad == other) only if nothing is summed and that tensor has the gradient's shape.
template <class T>
std::size_t binary_backward_scratch_bytes(const BinaryGradPlan& plan);
template <class T>
void binary_backward(cudaStream_t stream, const BinaryGradPlan& plan, const T* dy, const T* other, T* grad,
                     void* scratch);

// out = ((in[0] + in[1]) + in[2]) + ..., rounded to T once; out and each input [count]. At most 128 inputs. May be in
// place over any of the inputs.
template <class T>
void sum_n(cudaStream_t stream, std::span<const T* const> in, T* out, std::int64_t count);

// out = a + b [count], where the sum so far or the result may be wider than what is added. May be in place over an
// operand of the result's type.
template <class A, class Out>
void add_bf16(cudaStream_t stream, const A* a, const bf16* b, Out* out, std::int64_t count);

}  // namespace overtake::cuda
