#pragma once
// Group normalisation of channels-last images [batch][pixels][channels] on the GPU: kernels/cpu/group_norm.h. T is
// float or bf16; gamma, beta and statistics are float. Each call only enqueues; arrays start at 16-byte boundaries.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/group_norm.h"

namespace overtake::cuda {

using kernels::GroupNormShape;

// Floats of the buffer `partials` of each of the calls below.
std::int64_t group_norm_partials(const GroupNormShape& shape);

// x, y: [batch][pixels][channels], gamma, beta: [channels], mean, rstd: [batch][groups]. y may be in place over x.
template <class T>
void group_norm_forward(cudaStream_t stream, const GroupNormShape& shape, const T* x, const float* gamma,
                        const float* beta, float epsilon, T* y, float* mean, float* rstd, float* partials);

// dx [batch][pixels][channels]; may be in place over dy.
template <class T>
void group_norm_input_grad(cudaStream_t stream, const GroupNormShape& shape, const T* x, const T* dy,
                           const float* gamma, const float* mean, const float* rstd, T* dx, float* partials);

// Writes the sums over chunks of pixels of dy * (x - mean) * rstd and of dy.
template <class T>
void group_norm_weight_grad_reduce(cudaStream_t stream, const GroupNormShape& shape, const T* x, const T* dy,
                                   const float* mean, const float* rstd, float* partials);

// dgamma and dbeta [channels] from all chunks, each if not null.
void group_norm_weight_grad(cudaStream_t stream, const GroupNormShape& shape, const float* partials, float* dgamma,
                            float* dbeta);

}  // namespace overtake::cuda
