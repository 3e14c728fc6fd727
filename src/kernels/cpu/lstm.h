#pragma once
// One LSTM layer in one direction, batch first. Gates in the order i, f, g, o:
//   i = sigmoid, f = sigmoid, g = tanh, o = sigmoid of x_t w_ih^T + b_ih + h_(t-1) w_hh^T + b_hh
//   c_t = f c_(t-1) + i g;  h_t = o tanh(c_t)
//
// Units of forward and input_grad are batch rows (a part walks all time steps of its rows), units of weight_grad are
// rows of the weights; no bit depends on the range a unit is computed in (see gemm.h). T is float or bf16, for
// activations and weights; biases, saved gates and cell states are float.

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels {

struct RnnShape {
  std::int64_t batch = 0, steps = 0, inputs = 0, hidden = 0;  // B, T, I, H
};

template <class T>
struct LstmWeights {
  const T* w_ih;      // [4H, I]
  const T* w_hh;      // [4H, H]
  const float* b_ih;  // [4H] or null
  const float* b_hh;  // [4H] or null
};

// What the forward pass leaves for the backward pass.
struct LstmSaved {
  float* gates;  // [B, T, 4H], after their sigmoid or tanh
  float* cells;  // [B, T, H]
};

// Bytes of scratch, 64-byte aligned, for one part of at most `rows` batch rows.
template <class T>
std::int64_t lstm_forward_scratch_bytes(const RnnShape& shape, std::int64_t rows);
template <class T>
std::int64_t lstm_input_grad_scratch_bytes(const RnnShape& shape, std::int64_t rows);
template <class T>
std::int64_t lstm_weight_grad_scratch_bytes(const RnnShape& shape);

// Batch rows [begin, end) of y [B, T, H] and `saved`. x is [B, T, I]; h0 [B, H] and c0 [B, H] may be null (zeros); h_n
// [B, H] and c_n [B, H], the final states, may be null.
template <class T>
void lstm_forward(const RnnShape& shape, const LstmWeights<T>& weights, const T* x, const T* h0, const float* c0, T* y,
                  T* h_n, float* c_n, const LstmSaved& saved, void* scratch, std::int64_t begin, std::int64_t end);

// Batch rows [begin, end) of dgates [B, T, 4H] (before sigmoid and tanh; what weight_grad reads) and dx [B, T, I]
// (null: not wanted). dy is [B, T, H]; dh_n and dc_n, the gradients of the final states, may be null; dh0 and dc0 may
// be null.
template <class T>
void lstm_input_grad(const RnnShape& shape, const LstmWeights<T>& weights, const LstmSaved& saved, const float* c0,
                     const T* dy, const T* dh_n, const float* dc_n, T* dgates, T* dx, T* dh0, float* dc0, void* scratch,
                     std::int64_t begin, std::int64_t end);

// Gate rows [begin, end) of 4H of dw_ih [4H, I], dw_hh [4H, H] and db [4H] (the gradient of b_ih and of b_hh alike; may
// be null). y, h0 as in the forward pass.
template <class T>
void lstm_weight_grad(const RnnShape& shape, const T* dgates, const T* x, const T* y, const T* h0, float* dw_ih,
                      float* dw_hh, float* db, void* scratch, std::int64_t begin, std::int64_t end);

}  // namespace overtake::kernels
