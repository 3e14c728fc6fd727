#include "kernels/cpu/lstm.h"

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
  float* bias;           // [4H] b_ih + b_hh
  std::byte* recurrent;  // w_hh^T packed for [H, 4H]

  ForwardScratch(const RnnShape& s, Scratch& scratch)
      : bias(scratch.take<float>(4 * s.hidden)),
        recurrent(scratch.take<std::byte>(packed_b_bytes<T>(s.hidden, 4 * s.hidden))) {}
};

template <class T>
struct BackwardScratch {
  float* dh;             // [rows, H] gradient of h_t from step t + 1
  float* dc;             // [rows, H] gradient of c_t from step t + 1
  std::byte* recurrent;  // w_hh packed for [4H, H]

  BackwardScratch(const RnnShape& s, std::int64_t rows, Scratch& scratch)
      : dh(scratch.take<float>(rows * s.hidden)),
        dc(scratch.take<float>(rows * s.hidden)),
        recurrent(scratch.take<std::byte>(packed_b_bytes<T>(4 * s.hidden, s.hidden))) {}
};

// One step of one batch row. gates [4H], in: sums, out: activated; c_prev [H] or null; c, h [H].
template <class T>
void step_forward(std::int64_t hidden, float* __restrict gates, const float* __restrict c_prev, float* __restrict c,
                  T* __restrict h) {
  float *in = gates, *forget = gates + hidden, *cell = gates + 2 * hidden, *out = gates + 3 * hidden;
#pragma omp simd
  for (std::int64_t j = 0; j < hidden; ++j) {
    in[j] = sigmoid_fast(in[j]);
    forget[j] = sigmoid_fast(forget[j]);
    cell[j] = tanh_fast(cell[j]);
    out[j] = sigmoid_fast(out[j]);
    const float kept = c_prev != nullptr ? forget[j] * c_prev[j] : 0.0f;
    c[j] = kept + in[j] * cell[j];
    h[j] = from_float<T>(out[j] * tanh_fast(c[j]));
  }
}

// The backward of step_forward. dh [H] is the whole gradient of h; dc [H], in: gradient of c from the next step, out:
// of c_prev; dgates [4H] gradients of the sums.
template <class T>
void step_backward(std::int64_t hidden, const float* __restrict gates, const float* __restrict c_prev,
                   const float* __restrict c, const float* __restrict dh, const T* __restrict dy, float* __restrict dc,
                   T* __restrict dgates) {
  const float *in = gates, *forget = gates + hidden, *cell = gates + 2 * hidden, *out = gates + 3 * hidden;
#pragma omp simd
  for (std::int64_t j = 0; j < hidden; ++j) {
    const float grad_h = dh[j] + to_float(dy[j]);
    const float tanh_c = tanh_fast(c[j]);
    const float grad_c = dc[j] + grad_h * out[j] * (1.0f - tanh_c * tanh_c);
    const float before = c_prev != nullptr ? c_prev[j] : 0.0f;
    dgates[j] = from_float<T>(grad_c * cell[j] * in[j] * (1.0f - in[j]));
    dgates[hidden + j] = from_float<T>(grad_c * before * forget[j] * (1.0f - forget[j]));
    dgates[2 * hidden + j] = from_float<T>(grad_c * in[j] * (1.0f - cell[j] * cell[j]));
    dgates[3 * hidden + j] = from_float<T>(grad_h * tanh_c * out[j] * (1.0f - out[j]));
    dc[j] = grad_c * forget[j];
  }
}

// The row of cells before step t of batch row b, or null where it is zero.
const float* cells_before(const RnnShape& s, const float* cells, const float* c0, std::int64_t b, std::int64_t t) {
  if (t > 0) return cells + (b * s.steps + t - 1) * s.hidden;
  return c0 != nullptr ? c0 + b * s.hidden : nullptr;
}

}  // namespace

template <class T>
std::int64_t lstm_forward_scratch_bytes(const RnnShape& shape, std::int64_t) {
  Scratch measure(nullptr);
  ForwardScratch<T>(shape, measure);
  return measure.used();
}

template <class T>
std::int64_t lstm_input_grad_scratch_bytes(const RnnShape& shape, std::int64_t rows) {
  Scratch measure(nullptr);
  BackwardScratch<T>(shape, rows, measure);
  return measure.used();
}

template <class T>
std::int64_t lstm_weight_grad_scratch_bytes(const RnnShape& shape) {
  Scratch measure(nullptr);
  measure.take<T>(rnn_detail::kHistoryRows * shape.hidden);
  return measure.used();
}

template <class T>
void lstm_forward(const RnnShape& s, const LstmWeights<T>& weights, const T* x, const T* h0, const float* c0, T* y,
                  T* h_n, float* c_n, const LstmSaved& saved, void* memory, std::int64_t begin, std::int64_t end) {
  Scratch pieces(memory);
  const ForwardScratch<T> scratch(s, pieces);
  const std::int64_t hidden = s.hidden, gates = 4 * hidden, rows = end - begin;
  rnn_detail::add_biases(weights.b_ih, weights.b_hh, gates, scratch.bias);
  rnn_detail::project_inputs(s, x, weights.w_ih, scratch.bias, gates, saved.gates, gates, begin, end);
  pack_b(true, hidden, gates, weights.w_hh, hidden, scratch.recurrent);
  for (std::int64_t t = 0; t < s.steps; ++t) {
    const T* h = t > 0 ? y + (begin * s.steps + t - 1) * hidden : (h0 != nullptr ? h0 + begin * hidden : nullptr);
    if (h != nullptr) {
      gemm_packed(false, rows, gates, hidden, 1.0f, h, t > 0 ? s.steps * hidden : hidden, scratch.recurrent, 1.0f,
                  saved.gates + (begin * s.steps + t) * gates, s.steps * gates);
    }
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t at = b * s.steps + t;
      step_forward(hidden, saved.gates + at * gates, cells_before(s, saved.cells, c0, b, t), saved.cells + at * hidden,
                   y + at * hidden);
    }
  }
  for (std::int64_t b = begin; b < end; ++b) {
    const std::int64_t last = (b * s.steps + s.steps - 1) * hidden;
    if (h_n != nullptr) std::copy_n(y + last, hidden, h_n + b * hidden);
    if (c_n != nullptr) std::copy_n(saved.cells + last, hidden, c_n + b * hidden);
  }
}

template <class T>
void lstm_input_grad(const RnnShape& s, const LstmWeights<T>& weights, const LstmSaved& saved, const float* c0,
                     const T* dy, const T* dh_n, const float* dc_n, T* dgates, T* dx, T* dh0, float* dc0, void* memory,
                     std::int64_t begin, std::int64_t end) {
  const std::int64_t hidden = s.hidden, gates = 4 * hidden, rows = end - begin;
  Scratch pieces(memory);
  const BackwardScratch<T> scratch(s, rows, pieces);
  pack_b(false, gates, hidden, weights.w_hh, hidden, scratch.recurrent);
  for (std::int64_t j = 0; j < rows * hidden; ++j) {
    scratch.dh[j] = dh_n != nullptr ? to_float(dh_n[begin * hidden + j]) : 0.0f;
    scratch.dc[j] = dc_n != nullptr ? dc_n[begin * hidden + j] : 0.0f;
  }
  for (std::int64_t t = s.steps - 1; t >= 0; --t) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t at = b * s.steps + t, row = (b - begin) * hidden;
      step_backward(hidden, saved.gates + at * gates, cells_before(s, saved.cells, c0, b, t), saved.cells + at * hidden,
                    scratch.dh + row, dy + at * hidden, scratch.dc + row, dgates + at * gates);
    }
    gemm_packed(false, rows, hidden, gates, 1.0f, dgates + (begin * s.steps + t) * gates, s.steps * gates,
                scratch.recurrent, 0.0f, scratch.dh, hidden);
  }
  for (std::int64_t j = 0; dh0 != nullptr && j < rows * hidden; ++j) {
    dh0[begin * hidden + j] = from_float<T>(scratch.dh[j]);
  }
  if (dc0 != nullptr) std::copy_n(scratch.dc, rows * hidden, dc0 + begin * hidden);
  if (dx != nullptr) {
    linear_input_grad(dgates, weights.w_ih, dx, s.inputs, gates, begin * s.steps, end * s.steps);
  }
}

template <class T>
void lstm_weight_grad(const RnnShape& s, const T* dgates, const T* x, const T* y, const T* h0, float* dw_ih,
                      float* dw_hh, float* db, void* memory, std::int64_t begin, std::int64_t end) {
  const std::int64_t gates = 4 * s.hidden, total = s.batch * s.steps;
  Scratch pieces(memory);
  T* history = pieces.take<T>(rnn_detail::kHistoryRows * s.hidden);
  linear_weight_grad(dgates, x, dw_ih, total, s.inputs, gates, begin, end);
  rnn_detail::recurrent_weight_grad(s, dgates + begin, gates, end - begin, y, h0, history, dw_hh + begin * s.hidden);
  if (db != nullptr) linear_bias_grad(dgates, db, total, gates, begin, end);
}

template std::int64_t lstm_forward_scratch_bytes<float>(const RnnShape&, std::int64_t);
template std::int64_t lstm_forward_scratch_bytes<bf16>(const RnnShape&, std::int64_t);
template std::int64_t lstm_input_grad_scratch_bytes<float>(const RnnShape&, std::int64_t);
template std::int64_t lstm_input_grad_scratch_bytes<bf16>(const RnnShape&, std::int64_t);
template std::int64_t lstm_weight_grad_scratch_bytes<float>(const RnnShape&);
template std::int64_t lstm_weight_grad_scratch_bytes<bf16>(const RnnShape&);
template void lstm_forward(const RnnShape&, const LstmWeights<float>&, const float*, const float*, const float*, float*,
                           float*, float*, const LstmSaved&, void*, std::int64_t, std::int64_t);
template void lstm_forward(const RnnShape&, const LstmWeights<bf16>&, const bf16*, const bf16*, const float*, bf16*,
                           bf16*, float*, const LstmSaved&, void*, std::int64_t, std::int64_t);
template void lstm_input_grad(const RnnShape&, const LstmWeights<float>&, const LstmSaved&, const float*, const float*,
                              const float*, const float*, float*, float*, float*, float*, void*, std::int64_t,
                              std::int64_t);
template void lstm_input_grad(const RnnShape&, const LstmWeights<bf16>&, const LstmSaved&, const float*, const bf16*,
                              const bf16*, const float*, bf16*, bf16*, bf16*, float*, void*, std::int64_t,
                              std::int64_t);
template void lstm_weight_grad(const RnnShape&, const float*, const float*, const float*, const float*, float*, float*,
                               float*, void*, std::int64_t, std::int64_t);
template void lstm_weight_grad(const RnnShape&, const bf16*, const bf16*, const bf16*, const bf16*, float*, float*,
                               float*, void*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
