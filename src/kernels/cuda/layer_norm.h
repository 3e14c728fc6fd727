#pragma once
// Layer normalisation of rows: y = (x - mean) * rstd * gamma + beta, mean and rstd per row over its width; as
// kernels/cpu/layer_norm.h. T is float or bf16; gamma, beta and statistics are float. beta null means no shift.
// All arrays are in GPU memory at 16-byte boundaries; each call only enqueues.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"

namespace overtake::cuda {

// x, y: [rows][width], gamma, beta: [width], mean, rstd: [rows]. y may be in place over x. With a residual
// [rows][width] (else null), what is normalised is x + residual, rounded to T and written to sum [rows][width], which
// may be in place over x or residual (null exactly if residual is).
template <class T>
void layer_norm_forward(cudaStream_t stream, const T* x, const T* residual, const float* gamma, const float* beta,
                        std::int64_t rows, std::int64_t width, float epsilon, T* y, T* sum, float* mean, float* rstd);

// dx [rows][width], plus `add` [rows][width] if not null (the gradient that reaches x around the norm). dx may be in
// place over dy or add.
template <class T>
void layer_norm_input_grad(cudaStream_t stream, const T* x, const T* dy, const T* add, const float* gamma,
                           const float* mean, const float* rstd, std::int64_t rows, std::int64_t width, T* dx);

// Floats of the buffer `partials` below.
std::int64_t layer_norm_partials(std::int64_t rows, std::int64_t width);

// Writes sums over chunks of rows of dy * (x - mean) * rstd and of dy.
template <class T>
void layer_norm_weight_grad_reduce(cudaStream_t stream, const T* x, const T* dy, const float* mean, const float* rstd,
                                   std::int64_t rows, std::int64_t width, float* partials);

// dgamma and dbeta [width] from all chunks, each if not null.
void layer_norm_weight_grad(cudaStream_t stream, const float* partials, std::int64_t rows, std::int64_t width,
                            float* dgamma, float* dbeta);

}  // namespace overtake::cuda
