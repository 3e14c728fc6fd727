#pragma once
// The recurrences of one LSTM or GRU layer, batch first, from zero state, on the GPU: kernels/cpu/lstm.h and gru.h less
// the products over all time steps at once (x w_ih^T before the forward pass; dx and the weights' gradients after the
// backward pass), which the caller makes. T is float or bf16, for activations and weights; biases, pre-activations,
// saved gates and cell states are float. `inputs` of the shape is not read. Calls only enqueue; arrays start at 16-byte
// boundaries. The order of every sum follows from the shape and `multiprocessors` alone.
//
// bf16 layers whose w_hh fits the registers of the multiprocessors (hidden a multiple of 8, up to about 1024) are one
// cooperative kernel for all steps; others are a launch per step. Its blocks wait for one another, so where the stream
// has only some of the GPU's multiprocessors, their number must be given.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/lstm.h"

namespace overtake::cuda {

using kernels::RnnShape;

inline constexpr int kMultiprocessors = 132;  // of the H200

// Bytes of scratch for lstm_forward, lstm_input_grad, gru_forward and gru_input_grad alike.
std::size_t rnn_scratch_bytes(const RnnShape& shape);

// y [B, T, H], gates [B, T, 4H] (i, f, g, o after their sigmoid or tanh) and cells [B, T, H] from pre [B, T, 4H] =
// x w_ih^T. w_hh: [4H, H]; b_ih, b_hh: [4H] or null. pre may be gates itself.
template <class T>
void lstm_forward(cudaStream_t stream, const RnnShape& shape, const T* w_hh, const float* b_ih, const float* b_hh,
                  const float* pre, T* y, float* gates, float* cells, void* scratch,
                  int multiprocessors = kMultiprocessors);

// dgates [B, T, 4H], the gradients of the sums before sigmoid and tanh, from dy [B, T, H]. Then dx = dgates w_ih, dw_ih
// = dgates^T x, dw_hh = dgates^T shifted_states(y).
template <class T>
void lstm_input_grad(cudaStream_t stream, const RnnShape& shape, const T* w_hh, const float* gates, const float* cells,
                     const T* dy, T* dgates, void* scratch, int multiprocessors = kMultiprocessors);

// y [B, T, H] and gates [B, T, 4H] (r, z, n, and the term h w_hn^T + b_hn before the reset) from pre, whose rows (b, t)
// of 3H are x w_ih^T and pre_stride (>= 3H) elements apart. w_hh: [3H, H]; b_ih, b_hh: [3H] or null. pre may be gates
// itself with pre_stride = 4H.
template <class T>
void gru_forward(cudaStream_t stream, const RnnShape& shape, const T* w_hh, const float* b_ih, const float* b_hh,
                 const float* pre, std::int64_t pre_stride, T* y, float* gates, void* scratch,
                 int multiprocessors = kMultiprocessors);

// dgates [B, T, 4H]: the gradients of the sums of r, z and n, and of the term before the reset. Then dx and dw_ih take
// columns [0, 3H) of dgates; rows r and z of dw_hh take columns [0, 2H), rows n columns [3H, 4H).
template <class T>
void gru_input_grad(cudaStream_t stream, const RnnShape& shape, const T* w_hh, const float* gates, const T* y,
                    const T* dy, T* dgates, void* scratch, int multiprocessors = kMultiprocessors);

// out[b, t] = y[b, t - 1], zeros at t = 0; y, out [B, T, H]. Not in place.
template <class T>
void shifted_states(cudaStream_t stream, const RnnShape& shape, const T* y, T* out);

// The gradients of the biases, each null if not wanted, from dgates [B, T, 4H]: sums over all (b, t). The LSTM's two,
// [4H], are equal; the GRU's, [3H], differ in n.
std::size_t rnn_bias_grad_scratch_bytes(const RnnShape& shape);
template <class T>
void lstm_bias_grad(cudaStream_t stream, const RnnShape& shape, const T* dgates, float* db_ih, float* db_hh,
                    void* scratch);
template <class T>
void gru_bias_grad(cudaStream_t stream, const RnnShape& shape, const T* dgates, float* db_ih, float* db_hh,
                   void* scratch);

}  // namespace overtake::cuda
