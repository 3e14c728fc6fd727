#include "kernels/cpu/linear.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/block.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_blocks.h"

namespace overtake::kernels {
namespace {

constexpr std::int64_t kChunkRows = 64;      // rows of dy summed into one partial sum of dbias
constexpr std::int64_t kStripColumns = 256;  // columns of dy summed together

// values[cols] += bias[cols]; copies the result to pre; applies the activation.
template <class T>
void finish_row(float* values, const float* bias, std::optional<Activation> act, T* pre, std::int64_t cols) {
  if (bias != nullptr) {
#pragma omp simd
    for (std::int64_t j = 0; j < cols; ++j) values[j] += bias[j];
  }
  if (pre != nullptr) {
#pragma omp simd
    for (std::int64_t j = 0; j < cols; ++j) pre[j] = from_float<T>(values[j]);
  }
  if (act) activation_forward(ActivationFunction{*act}, values, values, cols, 0, blocks_of(cols));
}

}  // namespace

template <class T>
void linear_forward(const T* x, const T* w, const float* bias, std::optional<Activation> act, T* y, T* pre,
                    std::int64_t in, std::int64_t out, std::int64_t row_begin, std::int64_t row_end) {
  gemm_detail::Factors<T> factors;
  factors.trans_b = true;
  factors.m = row_end - row_begin, factors.n = out, factors.k = in;
  factors.a = x + row_begin * in, factors.lda = in;
  factors.b = w, factors.ldb = in;
  const auto finish = [&](float* part, std::int64_t ld, std::int64_t row, std::int64_t rows, std::int64_t col,
                          std::int64_t cols) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t at = (row_begin + row + i) * out + col;
      float* values = part + i * ld;
      finish_row(values, bias != nullptr ? bias + col : nullptr, act, pre != nullptr ? pre + at : nullptr, cols);
      if constexpr (!std::is_same_v<T, float>) {
        T* to = y + at;
#pragma omp simd
        for (std::int64_t j = 0; j < cols; ++j) to[j] = from_float<T>(values[j]);
      }
    }
  };
  if constexpr (std::is_same_v<T, float>) {
    gemm_detail::multiply_blocks<float>(factors, false, y + row_begin * out, out, finish);
  } else {
    gemm_detail::multiply_blocks_to<T>(factors, finish);
  }
}

template <class T>
void linear_input_grad(const T* dy, const T* w, T* dx, std::int64_t in, std::int64_t out, std::int64_t row_begin,
                       std::int64_t row_end) {
  gemm(false, false, row_end - row_begin, in, out, 1.0f, dy + row_begin * out, out, w, in, 0.0f, dx + row_begin * in,
       in);
}

template <class T>
void linear_weight_grad(const T* dy, const T* x, float* dw, std::int64_t rows, std::int64_t in, std::int64_t out,
                        std::int64_t out_begin, std::int64_t out_end) {
  gemm(true, false, out_end - out_begin, in, rows, 1.0f, dy + out_begin, out, x, in, 0.0f, dw + out_begin * in, in);
}

template <class T>
void linear_bias_grad(const T* dy, float* dbias, std::int64_t rows, std::int64_t out, std::int64_t out_begin,
                      std::int64_t out_end) {
  for (std::int64_t col = out_begin; col < out_end; col += kStripColumns) {
    const std::int64_t cols = std::min(kStripColumns, out_end - col);
    float* total = dbias + col;
    std::fill_n(total, cols, 0.0f);
    for (std::int64_t first = 0; first < rows; first += kChunkRows) {
      const std::int64_t last = std::min(first + kChunkRows, rows);
      float chunk[kStripColumns] = {};
      for (std::int64_t i = first; i < last; ++i) {
        const T* row = dy + i * out + col;
#pragma omp simd
        for (std::int64_t j = 0; j < cols; ++j) chunk[j] += to_float(row[j]);
      }
#pragma omp simd
      for (std::int64_t j = 0; j < cols; ++j) total[j] += chunk[j];
    }
  }
}

template void linear_forward(const float*, const float*, const float*, std::optional<Activation>, float*, float*,
                             std::int64_t, std::int64_t, std::int64_t, std::int64_t);
template void linear_forward(const bf16*, const bf16*, const float*, std::optional<Activation>, bf16*, bf16*,
                             std::int64_t, std::int64_t, std::int64_t, std::int64_t);
template void linear_input_grad(const float*, const float*, float*, std::int64_t, std::int64_t, std::int64_t,
                                std::int64_t);
template void linear_input_grad(const bf16*, const bf16*, bf16*, std::int64_t, std::int64_t, std::int64_t,
                                std::int64_t);
template void linear_weight_grad(const float*, const float*, float*, std::int64_t, std::int64_t, std::int64_t,
                                 std::int64_t, std::int64_t);
template void linear_weight_grad(const bf16*, const bf16*, float*, std::int64_t, std::int64_t, std::int64_t,
                                 std::int64_t, std::int64_t);
template void linear_bias_grad(const float*, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t);
template void linear_bias_grad(const bf16*, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
