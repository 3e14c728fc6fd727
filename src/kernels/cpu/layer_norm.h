#pragma once
// Layer normalisation of rows: y = (x - mean) * rstd * gamma + beta, mean and rstd per row over its width.
// T is float or bf16; gamma, beta and statistics are float. beta null means no shift.

#include <cstdint>

#include "kernels/cpu/partial_sums.h"

namespace overtake::kernels {

// Rows [begin, end). x, y: [rows][width], gamma, beta: [width], mean, rstd: [rows]. y may be in place over x. With a
// residual [rows][width] (else null), what is normalised is x + residual, rounded to T and written to sum
// [rows][width], which may be in place over x or residual (null exactly if residual is).
template <class T>
void layer_norm_forward(const T* x, const T* residual, const float* gamma, const float* beta, std::int64_t width,
                        float epsilon, T* y, T* sum, float* mean, float* rstd, std::int64_t begin, std::int64_t end);

// dx of rows [begin, end), plus `add` [rows][width] if not null (the gradient that reaches x around the norm). dx may
// be in place over dy or add.
template <class T>
void layer_norm_input_grad(const T* x, const T* dy, const T* add, const float* gamma, const float* mean,
                           const float* rstd, std::int64_t width, T* dx, std::int64_t begin, std::int64_t end);

// Floats of the buffer `partials` below: [row_chunks(rows)][2][width].
std::int64_t layer_norm_partials(std::int64_t rows, std::int64_t width);

// Writes the sums over rows of dy * (x - mean) * rstd and of dy, of chunks [begin, end) (partial_sums.h).
template <class T>
void layer_norm_weight_grad_reduce(const T* x, const T* dy, const float* mean, const float* rstd, std::int64_t rows,
                                   std::int64_t width, float* partials, std::int64_t begin, std::int64_t end);

// dgamma and dbeta of columns [begin, end) from all chunks, each if not null.
void layer_norm_weight_grad(const float* partials, std::int64_t rows, std::int64_t width, float* dgamma, float* dbeta,
                            std::int64_t begin, std::int64_t end);

}  // namespace overtake::kernels
