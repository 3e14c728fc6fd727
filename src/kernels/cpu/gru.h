#pragma once
// One GRU layer in one direction, batch first. Gates in the order r, z, n:
//   r, z = sigmoid of x_t w_i^T + b_i + h_(t-1) w_h^T + b_h
//   n = tanh(x_t w_in^T + b_in + r * (h_(t-1) w_hn^T + b_hn));  h_t = (1 - z) n + z h_(t-1)
//
// Ranges, types and the promise about bits are those of lstm.h.

#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/lstm.h"

namespace overtake::kernels {

template <class T>
struct GruWeights {
  const T* w_ih;      // [3H, I]
  const T* w_hh;      // [3H, H]
  const float* b_ih;  // [3H] or null
  const float* b_hh;  // [3H] or null
};

// Bytes of scratch, 64-byte aligned, for one part of at most `rows` batch rows.
template <class T>
std::int64_t gru_forward_scratch_bytes(const RnnShape& shape, std::int64_t rows);
template <class T>
std::int64_t gru_input_grad_scratch_bytes(const RnnShape& shape, std::int64_t rows);
template <class T>
std::int64_t gru_weight_grad_scratch_bytes(const RnnShape& shape);

// Batch rows [begin, end) of y [B, T, H] and gates [B, T, 4H]: r, z, n, and the term h w_hn^T + b_hn before the reset.
// x is [B, T, I]; h0 [B, H] may be null (zeros); h_n [B, H], the final state, may be null.
template <class T>
void gru_forward(const RnnShape& shape, const GruWeights<T>& weights, const T* x, const T* h0, T* y, T* h_n,
                 float* gates, void* scratch, std::int64_t begin, std::int64_t end);

// Batch rows [begin, end) of dgates [B, T, 4H] (r, z, n before their activation, and the term before the reset; what
// weight_grad reads) and dx [B, T, I] (null: not wanted). dy is [B, T, H]; dh_n [B, H] and dh0 [B, H] may be null.
template <class T>
void gru_input_grad(const RnnShape& shape, const GruWeights<T>& weights, const float* gates, const T* y, const T* h0,
                    const T* dy, const T* dh_n, T* dgates, T* dx, T* dh0, void* scratch, std::int64_t begin,
                    std::int64_t end);

// Gate rows [begin, end) of 3H of dw_ih [3H, I], dw_hh [3H, H], db_ih [3H] and db_hh [3H] (each may be null, except the
// weights'). y, h0 as in the forward pass.
template <class T>
void gru_weight_grad(const RnnShape& shape, const T* dgates, const T* x, const T* y, const T* h0, float* dw_ih,
                     float* dw_hh, float* db_ih, float* db_hh, void* scratch, std::int64_t begin, std::int64_t end);

}  // namespace overtake::kernels
