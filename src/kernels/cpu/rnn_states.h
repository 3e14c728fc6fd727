#pragma once
// What LSTM and GRU share: the states before each step, and the gradients of the weights. Internal to both.

#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/lstm.h"

namespace overtake::kernels::rnn_detail {

// Rows (b, t) of x [B, T, I] times w[gates, I]^T, plus bias[gates], for the batch rows [begin, end), to rows of `out`
// that are `ld` apart ([B, T, ld]).
template <class T>
void project_inputs(const RnnShape& shape, const T* x, const T* w, const float* bias, std::int64_t gates, float* out,
                    std::int64_t ld, std::int64_t begin, std::int64_t end);

// sum[count] = b_ih + b_hh; either may be null (zeros).
void add_biases(const float* b_ih, const float* b_hh, std::int64_t count, float* sum);

// Steps whose previous states enter one product of recurrent_weight_grad, and with it the elements of its scratch.
inline constexpr std::int64_t kHistoryRows = 1024;

// dw[gates, H] = the sum over (b, t) of dgates[b, t, :gates]^T h[b, t - 1, :], where h[b, -1] is h0[b] (null: zeros)
// and h[b, t] is y[b, t]. dgates points to the first of its columns, rows `ld` apart. `history` is scratch
// [kHistoryRows, H]. The sum runs over (b, t) in ascending order, in fixed chunks.
template <class T>
void recurrent_weight_grad(const RnnShape& shape, const T* dgates, std::int64_t ld, std::int64_t gates, const T* y,
                           const T* h0, T* history, float* dw);

}  // namespace overtake::kernels::rnn_detail
