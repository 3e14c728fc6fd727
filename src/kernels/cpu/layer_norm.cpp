#include "kernels/cpu/layer_norm.h"

#include <cmath>

#include "base/bf16.h"

namespace overtake::kernels {
namespace {

struct Statistics {
  float mean, rstd;
};

template <class T>
void add_residual(const T* x, const T* residual, std::int64_t width, T* sum) {
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) sum[c] = from_float<T>(to_float(x[c]) + to_float(residual[c]));
}

// Two passes over a row that is in the cache: the deviations are from the true mean, so nothing cancels.
template <class T>
Statistics row_statistics(const T* x, std::int64_t width, float epsilon) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < width; ++c) sum += to_float(x[c]);
  const float mean = sum / static_cast<float>(width);
  float squared = 0;
#pragma omp simd reduction(+ : squared)
  for (std::int64_t c = 0; c < width; ++c) {
    const float d = to_float(x[c]) - mean;
    squared += d * d;
  }
  return {mean, 1.0f / std::sqrt(squared / static_cast<float>(width) + epsilon)};
}

template <class T>
void write_row(const T* x, Statistics s, const float* gamma, const float* beta, std::int64_t width, T* y) {
  if (beta == nullptr) {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) y[c] = from_float<T>((to_float(x[c]) - s.mean) * s.rstd * gamma[c]);
    return;
  }
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) {
    y[c] = from_float<T>((to_float(x[c]) - s.mean) * s.rstd * gamma[c] + beta[c]);
  }
}

// Adds `count` rows (1 or 4), the first at x and dy with statistics at mean and rstd, to the two sums. All: [width].
template <int count, class T>
void add_rows(const T* x, const T* dy, const float* mean, const float* rstd, std::int64_t width,
              float* __restrict products, float* __restrict sum) {
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) {
    float row_products = 0, row_sum = 0;
    for (int r = 0; r < count; ++r) {
      const float gradient = to_float(dy[r * width + c]);
      row_products += gradient * ((to_float(x[r * width + c]) - mean[r]) * rstd[r]);
      row_sum += gradient;
    }
    products[c] += row_products;
    sum[c] += row_sum;
  }
}

}  // namespace

template <class T>
void layer_norm_forward(const T* x, const T* residual, const float* gamma, const float* beta, std::int64_t width,
                        float epsilon, T* y, T* sum, float* mean, float* rstd, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* values = x + row * width;
    if (residual != nullptr) {
      add_residual(values, residual + row * width, width, sum + row * width);
      values = sum + row * width;
    }
    const Statistics s = row_statistics(values, width, epsilon);
    mean[row] = s.mean;
    rstd[row] = s.rstd;
    write_row(values, s, gamma, beta, width, y + row * width);
  }
}

template <class T>
void layer_norm_input_grad(const T* x, const T* dy, const T* add, const float* gamma, const float* mean,
                           const float* rstd, std::int64_t width, T* dx, std::int64_t begin, std::int64_t end) {
  const float per_column = 1.0f / static_cast<float>(width);
  for (std::int64_t row = begin; row < end; ++row) {
    const T *x_row = x + row * width, *dy_row = dy + row * width;
    T* dx_row = dx + row * width;
    const float m = mean[row], r = rstd[row];
    float sum = 0, products = 0;
#pragma omp simd reduction(+ : sum, products)
    for (std::int64_t c = 0; c < width; ++c) {
      const float g = to_float(dy_row[c]) * gamma[c];
      sum += g;
      products += g * (to_float(x_row[c]) - m);
    }
    // dx = rstd * (g - mean of g - (x - mean) * rstd^2 * mean of g * (x - mean)), g = dy * gamma
    const float offset = sum * per_column, slope = products * per_column * r * r;
    if (add == nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) {
        const float centered = to_float(dy_row[c]) * gamma[c] - offset;
        dx_row[c] = from_float<T>(r * (centered - (to_float(x_row[c]) - m) * slope));
      }
    } else {
      const T* add_row = add + row * width;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) {
        const float centered = to_float(dy_row[c]) * gamma[c] - offset;
        dx_row[c] = from_float<T>(r * (centered - (to_float(x_row[c]) - m) * slope) + to_float(add_row[c]));
      }
    }
  }
}

std::int64_t layer_norm_partials(std::int64_t rows, std::int64_t width) { return row_chunks(rows) * 2 * width; }

template <class T>
void layer_norm_weight_grad_reduce(const T* x, const T* dy, const float* mean, const float* rstd, std::int64_t rows,
                                   std::int64_t width, float* partials, std::int64_t begin, std::int64_t end) {
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    const RowRange range = chunk_rows(rows, chunk);
    float* products = partials + chunk * 2 * width;
    float* sum = products + width;
    std::fill(products, products + 2 * width, 0.0f);
    const auto add = [&](std::int64_t row, auto count) {
      add_rows<count>(x + row * width, dy + row * width, mean + row, rstd + row, width, products, sum);
    };
    for_each_row_group(range, width, add, x, dy);
  }
}

void layer_norm_weight_grad(const float* partials, std::int64_t rows, std::int64_t width, float* dgamma, float* dbeta,
                            std::int64_t begin, std::int64_t end) {
  if (dgamma != nullptr) combine_partials(partials, row_chunks(rows), 2 * width, dgamma, begin, end);
  if (dbeta != nullptr) combine_partials(partials + width, row_chunks(rows), 2 * width, dbeta, begin, end);
}

template void layer_norm_forward(const float*, const float*, const float*, const float*, std::int64_t, float, float*,
                                 float*, float*, float*, std::int64_t, std::int64_t);
template void layer_norm_forward(const bf16*, const bf16*, const float*, const float*, std::int64_t, float, bf16*,
                                 bf16*, float*, float*, std::int64_t, std::int64_t);
template void layer_norm_input_grad(const float*, const float*, const float*, const float*, const float*, const float*,
                                    std::int64_t, float*, std::int64_t, std::int64_t);
template void layer_norm_input_grad(const bf16*, const bf16*, const bf16*, const float*, const float*, const float*,
                                    std::int64_t, bf16*, std::int64_t, std::int64_t);
template void layer_norm_weight_grad_reduce(const float*, const float*, const float*, const float*, std::int64_t,
                                            std::int64_t, float*, std::int64_t, std::int64_t);
template void layer_norm_weight_grad_reduce(const bf16*, const bf16*, const float*, const float*, std::int64_t,
                                            std::int64_t, float*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
