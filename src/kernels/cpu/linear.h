#pragma once
// Fully connected layer: y[rows, out] = act(x[rows, in] w[out, in]^T + bias[out]), the activation optional.
//
// The bits of a row (of y, dx) or of an output feature (of dw, dbias) do not depend on the range it is computed in;
// see gemm.h. T is float or bf16, for activations and for the weights; biases, dw and dbias are float.

#include <cstdint>
#include <optional>

#include "base/bf16.h"
#include "kernels/cpu/activation.h"

namespace overtake::kernels {

// Rows [row_begin, row_end) of y. bias may be null. Where `pre` is not null, the values before the activation go there
// ([rows, out]; what a backward pass of GELU or SiLU reads).
template <class T>
void linear_forward(const T* x, const T* w, const float* bias, std::optional<Activation> act, T* y, T* pre,
                    std::int64_t in, std::int64_t out, std::int64_t row_begin, std::int64_t row_end);

// Rows [row_begin, row_end) of dx[rows, in] = dy[rows, out] w[out, in]. dy is the gradient before the activation.
template <class T>
void linear_input_grad(const T* dy, const T* w, T* dx, std::int64_t in, std::int64_t out, std::int64_t row_begin,
                       std::int64_t row_end);

// Output features [out_begin, out_end) of dw[out, in] = dy[rows, out]^T x[rows, in].
template <class T>
void linear_weight_grad(const T* dy, const T* x, float* dw, std::int64_t rows, std::int64_t in, std::int64_t out,
                        std::int64_t out_begin, std::int64_t out_end);

// Output features [out_begin, out_end) of dbias[out]: the sums of the columns of dy[rows, out], over chunks of rows of
// a fixed length and then over the chunks, both in ascending order.
template <class T>
void linear_bias_grad(const T* dy, float* dbias, std::int64_t rows, std::int64_t out, std::int64_t out_begin,
                      std::int64_t out_end);

}  // namespace overtake::kernels
