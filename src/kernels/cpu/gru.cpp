#include "kernels/cpu/gru.h"

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/rnn_states.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"

namespace overtake::kernels {
namespace {

template <class T>
struct ForwardScratch {
  float* bias;              // [3H] b_ih, plus b_hh for r and z
  std::byte* reset_update;  // rows r and z of w_hh, transposed, packed for [H, 2H]
  std::byte* candidate;     // rows n of w_hh, transposed, packed for [H, H]

  ForwardScratch(const RnnShape& s, Scratch& scratch)
      : bias(scratch.take<float>(3 * s.hidden)),
        reset_update(scratch.take<std::byte>(packed_b_bytes<T>(s.hidden, 2 * s.hidden))),
        candidate(scratch.take<std::byte>(packed_b_bytes<T>(s.hidden, s.hidden))) {}
};

template <class T>
struct BackwardScratch {
  float* dh;                // [rows, H] gradient of h_t from step t + 1
  std::byte* reset_update;  // rows r and z of w_hh, packed for [2H, H]
  std::byte* candidate;     // rows n of w_hh, packed for [H, H]

  BackwardScratch(const RnnShape& s, std::int64_t rows, Scratch& scratch)
      : dh(scratch.take<float>(rows * s.hidden)),
        reset_update(scratch.take<std::byte>(packed_b_bytes<T>(2 * s.hidden, s.hidden))),
        candidate(scratch.take<std::byte>(packed_b_bytes<T>(s.hidden, s.hidden))) {}
};

// One step of one batch row. gates [4H], in: sums for r, z, the input's part of n, and h w_hn^T without its bias, out:
// r, z, n and that term with its bias; h_prev [H] or null; bias_hn [H] or null; h [H].
template <class T>
void step_forward(std::int64_t hidden, float* __restrict gates, const T* __restrict h_prev,
                  const float* __restrict bias_hn, T* __restrict h) {
  float *reset = gates, *update = gates + hidden, *candidate = gates + 2 * hidden, *term = gates + 3 * hidden;
#pragma omp simd
  for (std::int64_t j = 0; j < hidden; ++j) {
    reset[j] = sigmoid_fast(reset[j]);
    update[j] = sigmoid_fast(update[j]);
    term[j] += bias_hn != nullptr ? bias_hn[j] : 0.0f;
    candidate[j] = tanh_fast(candidate[j] + reset[j] * term[j]);
    const float before = h_prev != nullptr ? to_float(h_prev[j]) : 0.0f;
    h[j] = from_float<T>((1.0f - update[j]) * candidate[j] + update[j] * before);
  }
}

// The backward of step_forward. dh [H], in: gradient of h from the next step, out: the part of h_prev's gradient that
// passes by the gates; dgates [4H]: gradients of the sums for r, z, n, and of the term before the reset.
template <class T>
void step_backward(std::int64_t hidden, const float* __restrict gates, const T* __restrict h_prev,
                   const T* __restrict dy, float* __restrict dh, T* __restrict dgates) {
  const float *reset = gates, *update = gates + hidden, *candidate = gates + 2 * hidden, *term = gates + 3 * hidden;
#pragma omp simd
  for (std::int64_t j = 0; j < hidden; ++j) {
    const float grad_h = dh[j] + to_float(dy[j]);
    const float before = h_prev != nullptr ? to_float(h_prev[j]) : 0.0f;
    const float grad_n = grad_h * (1.0f - update[j]) * (1.0f - candidate[j] * candidate[j]);
    dgates[j] = from_float<T>(grad_n * term[j] * reset[j] * (1.0f - reset[j]));
    dgates[hidden + j] = from_float<T>(grad_h * (before - candidate[j]) * update[j] * (1.0f - update[j]));
    dgates[2 * hidden + j] = from_float<T>(grad_n);
    dgates[3 * hidden + j] = from_float<T>(grad_n * reset[j]);
    dh[j] = grad_h * update[j];
  }
}

// The row of states before step t of batch row b, or null where it is zero.
template <class T>
const T* state_before(const RnnShape& s, const T* y, const T* h0, std::int64_t b, std::int64_t t) {
  if (t > 0) return y + (b * s.steps + t - 1) * s.hidden;
  return h0 != nullptr ? h0 + b * s.hidden : nullptr;
}

// Adds h w_h^T of step t to the gates of batch rows [begin, end).
template <class T>
void add_recurrent(const RnnShape& s, const T* y, const T* h0, std::int64_t t, const ForwardScratch<T>& scratch,
                   float* gates, std::int64_t begin, std::int64_t end) {
  const std::int64_t hidden = s.hidden, width = 4 * hidden, rows = end - begin, ldc = s.steps * width;
  const T* h = state_before(s, y, h0, begin, t);
  float* first = gates + (begin * s.steps + t) * width;
  if (h == nullptr) {
    for (std::int64_t i = 0; i < rows; ++i) std::fill_n(first + i * ldc + 3 * hidden, hidden, 0.0f);
    return;
  }
  const std::int64_t lda = t > 0 ? s.steps * hidden : hidden;
  gemm_packed(false, rows, 2 * hidden, hidden, 1.0f, h, lda, scratch.reset_update, 1.0f, first, ldc);
  gemm_packed(false, rows, hidden, hidden, 1.0f, h, lda, scratch.candidate, 0.0f, first + 3 * hidden, ldc);
}

}  // namespace

template <class T>
std::int64_t gru_forward_scratch_bytes(const RnnShape& shape, std::int64_t) {
  Scratch measure(nullptr);
  ForwardScratch<T>(shape, measure);
  return measure.used();
}

template <class T>
std::int64_t gru_input_grad_scratch_bytes(const RnnShape& shape, std::int64_t rows) {
  Scratch measure(nullptr);
  BackwardScratch<T>(shape, rows, measure);
  return measure.used();
}

template <class T>
std::int64_t gru_weight_grad_scratch_bytes(const RnnShape& shape) {
  Scratch measure(nullptr);
  measure.take<T>(rnn_detail::kHistoryRows * shape.hidden);
  return measure.used();
}

template <class T>
void gru_forward(const RnnShape& s, const GruWeights<T>& weights, const T* x, const T* h0, T* y, T* h_n, float* gates,
                 void* memory, std::int64_t begin, std::int64_t end) {
  const std::int64_t hidden = s.hidden, width = 4 * hidden;
  Scratch pieces(memory);
  const ForwardScratch<T> scratch(s, pieces);
  rnn_detail::add_biases(weights.b_ih, weights.b_hh, 2 * hidden, scratch.bias);
  rnn_detail::add_biases(weights.b_ih != nullptr ? weights.b_ih + 2 * hidden : nullptr, nullptr, hidden,
                         scratch.bias + 2 * hidden);
  rnn_detail::project_inputs(s, x, weights.w_ih, scratch.bias, 3 * hidden, gates, width, begin, end);
  pack_b(true, hidden, 2 * hidden, weights.w_hh, hidden, scratch.reset_update);
  pack_b(true, hidden, hidden, weights.w_hh + 2 * hidden * hidden, hidden, scratch.candidate);
  const float* bias_hn = weights.b_hh != nullptr ? weights.b_hh + 2 * hidden : nullptr;
  for (std::int64_t t = 0; t < s.steps; ++t) {
    add_recurrent(s, y, h0, t, scratch, gates, begin, end);
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t at = b * s.steps + t;
      step_forward(hidden, gates + at * width, state_before(s, y, h0, b, t), bias_hn, y + at * hidden);
    }
  }
  for (std::int64_t b = begin; h_n != nullptr && b < end; ++b) {
    std::copy_n(y + (b * s.steps + s.steps - 1) * hidden, hidden, h_n + b * hidden);
  }
}

template <class T>
void gru_input_grad(const RnnShape& s, const GruWeights<T>& weights, const float* gates, const T* y, const T* h0,
                    const T* dy, const T* dh_n, T* dgates, T* dx, T* dh0, void* memory, std::int64_t begin,
                    std::int64_t end) {
  const std::int64_t hidden = s.hidden, width = 4 * hidden, rows = end - begin;
  Scratch pieces(memory);
  const BackwardScratch<T> scratch(s, rows, pieces);
  pack_b(false, 2 * hidden, hidden, weights.w_hh, hidden, scratch.reset_update);
  pack_b(false, hidden, hidden, weights.w_hh + 2 * hidden * hidden, hidden, scratch.candidate);
  for (std::int64_t j = 0; j < rows * hidden; ++j) {
    scratch.dh[j] = dh_n != nullptr ? to_float(dh_n[begin * hidden + j]) : 0.0f;
  }
  for (std::int64_t t = s.steps - 1; t >= 0; --t) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t at = b * s.steps + t;
      step_backward(hidden, gates + at * width, state_before(s, y, h0, b, t), dy + at * hidden,
                    scratch.dh + (b - begin) * hidden, dgates + at * width);
    }
    const T* first = dgates + (begin * s.steps + t) * width;
    gemm_packed(false, rows, hidden, 2 * hidden, 1.0f, first, s.steps * width, scratch.reset_update, 1.0f, scratch.dh,
                hidden);
    gemm_packed(false, rows, hidden, hidden, 1.0f, first + 3 * hidden, s.steps * width, scratch.candidate, 1.0f,
                scratch.dh, hidden);
  }
  for (std::int64_t j = 0; dh0 != nullptr && j < rows * hidden; ++j) {
    dh0[begin * hidden + j] = from_float<T>(scratch.dh[j]);
  }
  if (dx != nullptr) {
    gemm(false, false, rows * s.steps, s.inputs, 3 * hidden, 1.0f, dgates + begin * s.steps * width, width,
         weights.w_ih, s.inputs, 0.0f, dx + begin * s.steps * s.inputs, s.inputs);
  }
}

template <class T>
void gru_weight_grad(const RnnShape& s, const T* dgates, const T* x, const T* y, const T* h0, float* dw_ih,
                     float* dw_hh, float* db_ih, float* db_hh, void* memory, std::int64_t begin, std::int64_t end) {
  const std::int64_t hidden = s.hidden, width = 4 * hidden, total = s.batch * s.steps;
  Scratch pieces(memory);
  T* history = pieces.take<T>(rnn_detail::kHistoryRows * hidden);
  linear_weight_grad(dgates, x, dw_ih, total, s.inputs, width, begin, end);
  if (db_ih != nullptr) linear_bias_grad(dgates, db_ih, total, width, begin, end);
  // Rows of w_hh take the gradients of r and z, and, for n, those of the term before the reset.
  const std::int64_t split = std::clamp(2 * hidden, begin, end);
  const auto recurrent = [&](std::int64_t from, std::int64_t to, std::int64_t shift) {
    if (from == to) return;
    rnn_detail::recurrent_weight_grad(s, dgates + from + shift, width, to - from, y, h0, history,
                                      dw_hh + from * hidden);
    if (db_hh != nullptr) linear_bias_grad(dgates + shift, db_hh, total, width, from, to);
  };
  recurrent(begin, split, 0);
  recurrent(split, end, hidden);
}

template std::int64_t gru_forward_scratch_bytes<float>(const RnnShape&, std::int64_t);
template std::int64_t gru_forward_scratch_bytes<bf16>(const RnnShape&, std::int64_t);
template std::int64_t gru_input_grad_scratch_bytes<float>(const RnnShape&, std::int64_t);
template std::int64_t gru_input_grad_scratch_bytes<bf16>(const RnnShape&, std::int64_t);
template std::int64_t gru_weight_grad_scratch_bytes<float>(const RnnShape&);
template std::int64_t gru_weight_grad_scratch_bytes<bf16>(const RnnShape&);
template void gru_forward(const RnnShape&, const GruWeights<float>&, const float*, const float*, float*, float*, float*,
                          void*, std::int64_t, std::int64_t);
template void gru_forward(const RnnShape&, const GruWeights<bf16>&, const bf16*, const bf16*, bf16*, bf16*, float*,
                          void*, std::int64_t, std::int64_t);
template void gru_input_grad(const RnnShape&, const GruWeights<float>&, const float*, const float*, const float*,
                             const float*, const float*, float*, float*, float*, void*, std::int64_t, std::int64_t);
template void gru_input_grad(const RnnShape&, const GruWeights<bf16>&, const float*, const bf16*, const bf16*,
                             const bf16*, const bf16*, bf16*, bf16*, bf16*, void*, std::int64_t, std::int64_t);
template void gru_weight_grad(const RnnShape&, const float*, const float*, const float*, const float*, float*, float*,
                              float*, float*, void*, std::int64_t, std::int64_t);
template void gru_weight_grad(const RnnShape&, const bf16*, const bf16*, const bf16*, const bf16*, float*, float*,
                              float*, float*, void*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
