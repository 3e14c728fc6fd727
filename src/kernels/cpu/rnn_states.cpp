#include "kernels/cpu/rnn_states.h"

#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_blocks.h"

namespace overtake::kernels::rnn_detail {

template <class T>
void project_inputs(const RnnShape& s, const T* x, const T* w, const float* bias, std::int64_t gates, float* out,
                    std::int64_t ld, std::int64_t begin, std::int64_t end) {
  gemm_detail::Factors<T> factors;
  factors.trans_b = true;
  factors.m = (end - begin) * s.steps, factors.n = gates, factors.k = s.inputs;
  factors.a = x + begin * s.steps * s.inputs, factors.lda = s.inputs;
  factors.b = w, factors.ldb = s.inputs;
  const auto add_bias = [bias](float* part, std::int64_t part_ld, std::int64_t, std::int64_t rows, std::int64_t col,
                               std::int64_t cols) {
    for (std::int64_t i = 0; i < rows; ++i) {
      float* row = part + i * part_ld;
#pragma omp simd
      for (std::int64_t j = 0; j < cols; ++j) row[j] += bias[col + j];
    }
  };
  gemm_detail::multiply_blocks<T>(factors, false, out + begin * s.steps * ld, ld, add_bias);
}

void add_biases(const float* b_ih, const float* b_hh, std::int64_t count, float* sum) {
  for (std::int64_t j = 0; j < count; ++j) {
    sum[j] = (b_ih != nullptr ? b_ih[j] : 0.0f) + (b_hh != nullptr ? b_hh[j] : 0.0f);
  }
}

template <class T>
void recurrent_weight_grad(const RnnShape& s, const T* dgates, std::int64_t ld, std::int64_t gates, const T* y,
                           const T* h0, T* history, float* dw) {
  const std::int64_t total = s.batch * s.steps;
  for (std::int64_t first = 0; first < total; first += kHistoryRows) {
    const std::int64_t rows = std::min(kHistoryRows, total - first);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t b = (first + r) / s.steps, t = (first + r) % s.steps;
      T* to = history + r * s.hidden;
      if (t > 0) {
        std::copy_n(y + (first + r - 1) * s.hidden, s.hidden, to);
      } else if (h0 != nullptr) {
        std::copy_n(h0 + b * s.hidden, s.hidden, to);
      } else {
        std::fill_n(to, s.hidden, from_float<T>(0.0f));
      }
    }
    gemm(true, false, gates, s.hidden, rows, 1.0f, dgates + first * ld, ld, history, s.hidden, first == 0 ? 0.0f : 1.0f,
         dw, s.hidden);
  }
}

template void project_inputs(const RnnShape&, const float*, const float*, const float*, std::int64_t, float*,
                             std::int64_t, std::int64_t, std::int64_t);
template void project_inputs(const RnnShape&, const bf16*, const bf16*, const float*, std::int64_t, float*,
                             std::int64_t, std::int64_t, std::int64_t);
template void recurrent_weight_grad(const RnnShape&, const float*, std::int64_t, std::int64_t, const float*,
                                    const float*, float*, float*);
template void recurrent_weight_grad(const RnnShape&, const bf16*, std::int64_t, std::int64_t, const bf16*, const bf16*,
                                    bf16*, float*);

}  // namespace overtake::kernels::rnn_detail
