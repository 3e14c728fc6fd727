#include "kernels/cpu/batch_norm.h"

#include <array>
#include <cmath>

#include "base/bf16.h"
#include "base/error.h"

namespace overtake::kernels {
namespace {

// Channels done at a time: what is computed per channel stays in the first-level cache while rows stream by.
constexpr std::int64_t kChannelTile = 1024;
using Tile = std::array<float, kChannelTile>;

// The value before the activation. Forward and mask recomputation share it, so that they agree to the last bit.
inline float normalised(float x, float mean, float scale, float beta) { return __builtin_fmaf(x - mean, scale, beta); }

// gamma * rstd of the channels [first, first + width).
void fill_scale(const BatchNormChannels& norm, std::int64_t first, std::int64_t width, Tile& scale) {
  for (std::int64_t c = 0; c < width; ++c) {
    scale[static_cast<std::size_t>(c)] = norm.gamma[first + c] * norm.rstd[first + c];
  }
}

// Adds `count` rows (1 or 4) of deviations from the row `origin` to sum and to the sum of squares. All: [width].
template <int count, class T>
void add_deviations(const T* x, std::int64_t row_stride, const T* origin, std::int64_t width, float* __restrict sum,
                    float* __restrict squares) {
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) {
    const float center = to_float(origin[c]);
    float deviations = 0, deviations_squared = 0;
    for (int r = 0; r < count; ++r) {
      const float d = to_float(x[r * row_stride + c]) - center;
      deviations += d;
      deviations_squared += d * d;
    }
    sum[c] += deviations;
    squares[c] += deviations_squared;
  }
}

template <class T, bool has_residual, bool relu>
void apply_rows(const T* x, const T* residual, const BatchNormChannels& norm, std::int64_t channels, T* y,
                std::int64_t begin, std::int64_t end) {
  Tile scales;
  for (std::int64_t first = 0; first < channels; first += kChannelTile) {
    const std::int64_t width = std::min(kChannelTile, channels - first);
    fill_scale(norm, first, width, scales);
    const float *scale = scales.data(), *mean = norm.mean + first, *beta = norm.beta + first;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * channels + first;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) {
        float z = normalised(to_float(x[at + c]), mean[c], scale[c], beta[c]);
        if constexpr (has_residual) z += to_float(residual[at + c]);
        if constexpr (relu) z = z < 0.0f ? 0.0f : z;  // NaN stays NaN
        y[at + c] = from_float<T>(z);
      }
    }
  }
}

// Rows of a gradient with what is needed to mask them. All pointers are at the first channel of the tile.
template <class T>
struct GradRows {
  const T *x, *dy, *y;
  T* dz;
  const float *mean, *scale, *beta;
  std::int64_t row_stride, width;
};

template <BatchNormMask mask, class T>
inline float masked(const GradRows<T>& g, std::int64_t at, std::int64_t c) {
  const float dy = to_float(g.dy[at]);
  if constexpr (mask == BatchNormMask::from_x) {
    return normalised(to_float(g.x[at]), g.mean[c], g.scale[c], g.beta[c]) > 0.0f ? dy : 0.0f;
  }
  if constexpr (mask == BatchNormMask::from_y) return to_float(g.y[at]) > 0.0f ? dy : 0.0f;
  return dy;
}

// Adds `count` rows starting at `row` to the sums of dz and of dz * (x - mean), and stores dz if asked to.
template <BatchNormMask mask, bool store, int count, class T>
void add_gradients(const GradRows<T>& g, std::int64_t row, float* __restrict sum, float* __restrict products) {
#pragma omp simd
  for (std::int64_t c = 0; c < g.width; ++c) {
    const float mean = g.mean[c];
    float dz_sum = 0, product_sum = 0;
    for (int r = 0; r < count; ++r) {
      const std::int64_t at = (row + r) * g.row_stride + c;
      const float dz = masked<mask>(g, at, c);
      if constexpr (store) g.dz[at] = from_float<T>(dz);
      dz_sum += dz;
      product_sum += dz * (to_float(g.x[at]) - mean);
    }
    sum[c] += dz_sum;
    products[c] += product_sum;
  }
}

template <BatchNormMask mask, bool store, class T>
void grad_reduce_chunks(const T* x, const T* dy, const T* y, const BatchNormChannels& norm, std::int64_t rows,
                        std::int64_t channels, T* dz, float* partials, std::int64_t begin, std::int64_t end) {
  Tile scales;
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    const RowRange range = chunk_rows(rows, chunk);
    for (std::int64_t first = 0; first < channels; first += kChannelTile) {
      const std::int64_t width = std::min(kChannelTile, channels - first);
      fill_scale(norm, first, width, scales);
      const GradRows<T> g{x + first,
                          dy + first,
                          mask == BatchNormMask::from_y ? y + first : nullptr,
                          store ? dz + first : nullptr,
                          norm.mean + first,
                          scales.data(),
                          norm.beta + first,
                          channels,
                          width};
      float* sum = partials + chunk * 2 * channels + first;
      float* products = sum + channels;
      std::fill(sum, sum + width, 0.0f);
      std::fill(products, products + width, 0.0f);
      const auto add = [&](std::int64_t row, auto count) { add_gradients<mask, store, count>(g, row, sum, products); };
      if constexpr (mask == BatchNormMask::from_y) {
        for_each_row_group(range, channels, add, x, dy, y);
      } else {
        for_each_row_group(range, channels, add, x, dy);
      }
    }
  }
}

template <BatchNormMask mask, class T>
void input_grad_rows(const T* x, const T* dy, const BatchNormChannels& norm, const float* dgamma, const float* dbeta,
                     std::int64_t batch_rows, std::int64_t channels, T* dx, std::int64_t begin, std::int64_t end) {
  // dx = scale * (dz - dbeta / batch_rows - (x - mean) * rstd * dgamma / batch_rows)
  Tile scales, offsets, slopes;
  const float per_row = 1.0f / static_cast<float>(batch_rows);
  for (std::int64_t first = 0; first < channels; first += kChannelTile) {
    const std::int64_t width = std::min(kChannelTile, channels - first);
    fill_scale(norm, first, width, scales);
    for (std::int64_t c = 0; c < width; ++c) {
      offsets[static_cast<std::size_t>(c)] = dbeta[first + c] * per_row;
      slopes[static_cast<std::size_t>(c)] = dgamma[first + c] * norm.rstd[first + c] * per_row;
    }
    const float *scale = scales.data(), *offset = offsets.data(), *slope = slopes.data();
    const float* mean = norm.mean + first;
    const GradRows<T> g{x + first, dy + first, nullptr, nullptr, mean, scale, norm.beta + first, channels, width};
    for (std::int64_t row = begin; row < end; ++row) {
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) {
        const std::int64_t at = row * channels + c;
        const float centered = masked<mask>(g, at, c) - offset[c];
        const float deviation = to_float(g.x[at]) - mean[c];
        dx[at + first] = from_float<T>(scale[c] * __builtin_fmaf(-deviation, slope[c], centered));
      }
    }
  }
}

// How many values, their mean and the sum of squared deviations from it.
struct Moments {
  double count = 0, mean = 0, squared = 0;

  void add(const Moments& more) {
    const double delta = more.mean - mean, share = more.count / (count + more.count);
    squared += more.squared + delta * delta * count * share;
    mean += delta * share;
    count += more.count;
  }
  void store(std::int64_t c, float epsilon, float momentum, float* means, float* rstd, float* running_mean,
             float* running_var) const {
    means[c] = static_cast<float>(mean);
    rstd[c] = static_cast<float>(1.0 / std::sqrt(squared / count + static_cast<double>(epsilon)));
    if (running_mean != nullptr) running_mean[c] += momentum * (means[c] - running_mean[c]);
    if (running_var == nullptr) return;
    const auto unbiased = static_cast<float>(squared / std::max(count - 1.0, 1.0));
    running_var[c] += momentum * (unbiased - running_var[c]);
  }
};

// Of channel c, from what batch_norm_reduce made.
Moments moments_of_chunks(const float* partials, std::int64_t rows, std::int64_t channels, std::int64_t c) {
  Moments all;
  for (std::int64_t chunk = 0; chunk < row_chunks(rows); ++chunk) {
    const RowRange range = chunk_rows(rows, chunk);
    const float* partial = partials + chunk * 2 * channels + c;
    all.add({static_cast<double>(range.end - range.begin), static_cast<double>(partial[0]),
             static_cast<double>(partial[channels])});
  }
  all.mean += static_cast<double>(partials[row_chunks(rows) * 2 * channels + c]);
  return all;
}

}  // namespace

std::int64_t batch_norm_partials(std::int64_t rows, std::int64_t channels) {
  return (row_chunks(rows) * 2 + 1) * channels;
}

std::int64_t batch_norm_grad_partials(std::int64_t rows, std::int64_t channels) {
  return row_chunks(rows) * 2 * channels;
}

template <class T>
void batch_norm_reduce(const T* x, std::int64_t rows, std::int64_t channels, float* partials, std::int64_t begin,
                       std::int64_t end) {
  if (begin == 0 && end > 0) {
    float* origin = partials + row_chunks(rows) * 2 * channels;
    for (std::int64_t c = 0; c < channels; ++c) origin[c] = to_float(x[c]);
  }
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    const RowRange range = chunk_rows(rows, chunk);
    float* sum = partials + chunk * 2 * channels;
    float* squares = sum + channels;
    std::fill(sum, sum + 2 * channels, 0.0f);
    const auto add = [&](std::int64_t row, auto count) {
      add_deviations<count>(x + row * channels, channels, x, channels, sum, squares);
    };
    for_each_row_group(range, channels, add, x);

    const float per_row = 1.0f / static_cast<float>(range.end - range.begin);
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float mean_deviation = sum[c] * per_row;
      const float squared = __builtin_fmaf(-sum[c], mean_deviation, squares[c]);
      sum[c] = mean_deviation;
      squares[c] = squared < 0.0f ? 0.0f : squared;
    }
  }
}

void batch_norm_statistics(const float* partials, std::int64_t rows, std::int64_t channels, float epsilon,
                           float momentum, float* mean, float* rstd, float* running_mean, float* running_var,
                           std::int64_t begin, std::int64_t end) {
  for (std::int64_t c = begin; c < end; ++c)
    moments_of_chunks(partials, rows, channels, c).store(c, epsilon, momentum, mean, rstd, running_mean, running_var);
}

void batch_norm_moments(const float* partials, std::int64_t rows, std::int64_t channels, double* moments,
                        std::int64_t begin, std::int64_t end) {
  for (std::int64_t c = begin; c < end; ++c) {
    const Moments all = moments_of_chunks(partials, rows, channels, c);
    moments[c] = all.mean;
    moments[channels + c] = all.squared;
  }
}

void batch_norm_joint_statistics(const double* moments, std::int64_t members, std::int64_t rows, std::int64_t channels,
                                 float epsilon, float momentum, float* mean, float* rstd, float* running_mean,
                                 float* running_var, std::int64_t begin, std::int64_t end) {
  for (std::int64_t c = begin; c < end; ++c) {
    Moments all;
    for (std::int64_t m = 0; m < members; ++m) {
      const double* own = moments + m * 2 * channels + c;
      all.add({static_cast<double>(rows), own[0], own[channels]});
    }
    all.store(c, epsilon, momentum, mean, rstd, running_mean, running_var);
  }
}

void batch_norm_running_rstd(const float* running_var, float epsilon, float* rstd, std::int64_t begin,
                             std::int64_t end) {
  for (std::int64_t c = begin; c < end; ++c) {
    rstd[c] = static_cast<float>(1.0 / std::sqrt(static_cast<double>(running_var[c]) + static_cast<double>(epsilon)));
  }
}

template <class T>
void batch_norm_apply(const T* x, const T* residual, const BatchNormChannels& norm, std::int64_t channels, bool relu,
                      T* y, std::int64_t begin, std::int64_t end) {
  if (residual != nullptr) {
    const auto run = relu ? apply_rows<T, true, true> : apply_rows<T, true, false>;
    run(x, residual, norm, channels, y, begin, end);
  } else {
    const auto run = relu ? apply_rows<T, false, true> : apply_rows<T, false, false>;
    run(x, residual, norm, channels, y, begin, end);
  }
}

template <class T>
void batch_norm_grad_reduce(const T* x, const T* dy, const T* y, const BatchNormChannels& norm, BatchNormMask mask,
                            std::int64_t rows, std::int64_t channels, T* dz, float* partials, std::int64_t begin,
                            std::int64_t end) {
  const bool store = dz != nullptr;
  using enum BatchNormMask;
  auto run = store ? grad_reduce_chunks<none, true, T> : grad_reduce_chunks<none, false, T>;
  if (mask == from_x) run = store ? grad_reduce_chunks<from_x, true, T> : grad_reduce_chunks<from_x, false, T>;
  if (mask == from_y) run = store ? grad_reduce_chunks<from_y, true, T> : grad_reduce_chunks<from_y, false, T>;
  run(x, dy, y, norm, rows, channels, dz, partials, begin, end);
}

void batch_norm_weight_grad(const float* partials, std::int64_t rows, std::int64_t channels, const float* rstd,
                            float* dgamma, float* dbeta, std::int64_t begin, std::int64_t end) {
  if (dbeta != nullptr) combine_partials(partials, row_chunks(rows), 2 * channels, dbeta, begin, end);
  if (dgamma == nullptr) return;
  combine_partials(partials + channels, row_chunks(rows), 2 * channels, dgamma, begin, end);
  for (std::int64_t c = begin; c < end; ++c) dgamma[c] *= rstd[c];
}

template <class T>
void batch_norm_input_grad(const T* x, const T* dy, const BatchNormChannels& norm, const float* dgamma,
                           const float* dbeta, BatchNormMask mask, std::int64_t batch_rows, std::int64_t channels,
                           T* dx, std::int64_t begin, std::int64_t end) {
  OVERTAKE_CHECK(mask != BatchNormMask::from_y, "batch_norm input_grad takes the masked gradient");
  const auto run = mask == BatchNormMask::from_x ? input_grad_rows<BatchNormMask::from_x, T>
                                                 : input_grad_rows<BatchNormMask::none, T>;
  run(x, dy, norm, dgamma, dbeta, batch_rows, channels, dx, begin, end);
}

template void batch_norm_reduce(const float*, std::int64_t, std::int64_t, float*, std::int64_t, std::int64_t);
template void batch_norm_reduce(const bf16*, std::int64_t, std::int64_t, float*, std::int64_t, std::int64_t);
template void batch_norm_apply(const float*, const float*, const BatchNormChannels&, std::int64_t, bool, float*,
                               std::int64_t, std::int64_t);
template void batch_norm_apply(const bf16*, const bf16*, const BatchNormChannels&, std::int64_t, bool, bf16*,
                               std::int64_t, std::int64_t);
template void batch_norm_grad_reduce(const float*, const float*, const float*, const BatchNormChannels&, BatchNormMask,
                                     std::int64_t, std::int64_t, float*, float*, std::int64_t, std::int64_t);
template void batch_norm_grad_reduce(const bf16*, const bf16*, const bf16*, const BatchNormChannels&, BatchNormMask,
                                     std::int64_t, std::int64_t, bf16*, float*, std::int64_t, std::int64_t);
template void batch_norm_input_grad(const float*, const float*, const BatchNormChannels&, const float*, const float*,
                                    BatchNormMask, std::int64_t, std::int64_t, float*, std::int64_t, std::int64_t);
template void batch_norm_input_grad(const bf16*, const bf16*, const BatchNormChannels&, const float*, const float*,
                                    BatchNormMask, std::int64_t, std::int64_t, bf16*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
