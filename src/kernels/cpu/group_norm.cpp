#include "kernels/cpu/group_norm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bf16.h"
#include "kernels/cpu/partial_sums.h"

namespace overtake::kernels {
namespace {

// Channels done at a time, groups or not: sums per channel stay in the first-level cache while pixels stream by.
constexpr std::int64_t kChannelTile = 1024;
using Tile = std::array<float, kChannelTile>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Sums over the pixels of one image, channels [0, width) from x on: deviations from the first pixel, and their squares.
template <class T>
void channel_deviations(const T* x, std::int64_t pixels, std::int64_t channels, std::int64_t width, Tile& sums,
                        Tile& squares) {
  float *sum = sums.data(), *square = squares.data();
  std::fill(sum, sum + width, 0.0f);
  std::fill(square, square + width, 0.0f);
  const auto add = [&](std::int64_t pixel, auto count) {
    const T* values = x + pixel * channels;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      float deviations = 0, deviations_squared = 0;
      for (int i = 0; i < count; ++i) {
        const float d = to_float(values[i * channels + c]) - to_float(x[c]);
        deviations += d;
        deviations_squared += d * d;
      }
      sum[c] += deviations;
      square[c] += deviations_squared;
    }
  };
  for_each_row_group({0, pixels}, channels, add, x);
}

// The running mean and sum of squared deviations of a group while its channels come in.
struct Moments {
  double count = 0, mean = 0, squared = 0;

  void add(double added, double added_mean, double added_squared) {
    const double delta = added_mean - mean;
    const double share = added / (count + added);
    squared += added_squared + delta * delta * count * share;
    mean += delta * share;
    count += added;
  }
};

// mean and rstd: [groups] of one image.
template <class T>
void image_statistics(const GroupNormShape& s, const T* x, float epsilon, float* mean, float* rstd) {
  Tile sums, squares;
  const std::int64_t per_group = s.channels / s.groups;
  const double pixels = static_cast<double>(s.pixels);
  Moments group;
  for (std::int64_t first = 0; first < s.channels; first += kChannelTile) {
    const std::int64_t width = std::min(kChannelTile, s.channels - first);
    channel_deviations(x + first, s.pixels, s.channels, width, sums, squares);
    for (std::int64_t c = 0; c < width; ++c) {
      const double deviation = static_cast<double>(sums[at(c)]) / pixels;
      const double squared = static_cast<double>(squares[at(c)]) - static_cast<double>(sums[at(c)]) * deviation;
      group.add(pixels, static_cast<double>(to_float(x[first + c])) + deviation, std::max(squared, 0.0));
      if ((first + c + 1) % per_group != 0) continue;
      const std::int64_t g = (first + c) / per_group;
      mean[g] = static_cast<float>(group.mean);
      rstd[g] = static_cast<float>(1.0 / std::sqrt(group.squared / group.count + static_cast<double>(epsilon)));
      group = Moments{};
    }
  }
}

// Spreads values per group to channels [first, first + width).
void fill_from_groups(const float* values, std::int64_t stride, std::int64_t per_group, std::int64_t first,
                      std::int64_t width, Tile& tile) {
  for (std::int64_t c = 0; c < width; ++c) tile[at(c)] = values[(first + c) / per_group * stride];
}

// Sums over the pixels of one image, channels [0, width) from x and dy on: dy, and dy * (x - mean).
template <class T>
void channel_gradients(const T* x, const T* dy, const float* mean, std::int64_t pixels, std::int64_t channels,
                       std::int64_t width, Tile& sums, Tile& products) {
  float *sum = sums.data(), *product = products.data();
  std::fill(sum, sum + width, 0.0f);
  std::fill(product, product + width, 0.0f);
  const auto add = [&](std::int64_t pixel, auto count) {
    const T *x_pixel = x + pixel * channels, *dy_pixel = dy + pixel * channels;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      float gradients = 0, gradient_products = 0;
      for (int i = 0; i < count; ++i) {
        const float g = to_float(dy_pixel[i * channels + c]);
        gradients += g;
        gradient_products += g * (to_float(x_pixel[i * channels + c]) - mean[c]);
      }
      sum[c] += gradients;
      product[c] += gradient_products;
    }
  };
  for_each_row_group({0, pixels}, channels, add, x, dy);
}

// group_sums: [groups][2] of one image: the sums over the group of g and of g * (x - mean), g = dy * gamma.
template <class T>
void image_group_sums(const GroupNormShape& s, const T* x, const T* dy, const float* gamma, const float* mean,
                      float* group_sums) {
  Tile means, sums, products;
  const std::int64_t per_group = s.channels / s.groups;
  double sum = 0, product = 0;
  for (std::int64_t first = 0; first < s.channels; first += kChannelTile) {
    const std::int64_t width = std::min(kChannelTile, s.channels - first);
    fill_from_groups(mean, 1, per_group, first, width, means);
    channel_gradients(x + first, dy + first, means.data(), s.pixels, s.channels, width, sums, products);
    for (std::int64_t c = 0; c < width; ++c) {
      sum += static_cast<double>(sums[at(c)]) * static_cast<double>(gamma[first + c]);
      product += static_cast<double>(products[at(c)]) * static_cast<double>(gamma[first + c]);
      if ((first + c + 1) % per_group != 0) continue;
      const std::int64_t g = (first + c) / per_group;
      group_sums[2 * g] = static_cast<float>(sum);
      group_sums[2 * g + 1] = static_cast<float>(product);
      sum = product = 0;
    }
  }
}

}  // namespace

template <class T>
void group_norm_forward(const GroupNormShape& s, const T* x, const float* gamma, const float* beta, float epsilon, T* y,
                        float* mean, float* rstd, std::int64_t begin, std::int64_t end) {
  Tile means, scales;
  for (std::int64_t n = begin; n < end; ++n) {
    const T* x_image = x + n * s.pixels * s.channels;
    T* y_image = y + n * s.pixels * s.channels;
    image_statistics(s, x_image, epsilon, mean + n * s.groups, rstd + n * s.groups);
    for (std::int64_t first = 0; first < s.channels; first += kChannelTile) {
      const std::int64_t width = std::min(kChannelTile, s.channels - first);
      fill_from_groups(mean + n * s.groups, 1, s.channels / s.groups, first, width, means);
      fill_from_groups(rstd + n * s.groups, 1, s.channels / s.groups, first, width, scales);
      for (std::int64_t c = 0; c < width; ++c) scales[at(c)] *= gamma[first + c];
      const float *m = means.data(), *scale = scales.data(), *shift = beta + first;
      for (std::int64_t p = 0; p < s.pixels; ++p) {
        const std::int64_t offset = p * s.channels + first;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) {
          y_image[offset + c] = from_float<T>((to_float(x_image[offset + c]) - m[c]) * scale[c] + shift[c]);
        }
      }
    }
  }
}

template <class T>
void group_norm_input_grad(const GroupNormShape& s, const T* x, const T* dy, const float* gamma, const float* mean,
                           const float* rstd, float* group_sums, T* dx, std::int64_t begin, std::int64_t end) {
  // dx = rstd * (g - mean of g - (x - mean) * rstd^2 * mean of g * (x - mean)), g = dy * gamma, means over the group
  Tile means, rstds, offsets, slopes;
  const std::int64_t per_group = s.channels / s.groups;
  const float per_element = 1.0f / static_cast<float>(s.pixels * per_group);
  for (std::int64_t n = begin; n < end; ++n) {
    const std::int64_t image = n * s.pixels * s.channels;
    float* sums = group_sums + n * s.groups * 2;
    image_group_sums(s, x + image, dy + image, gamma, mean + n * s.groups, sums);
    for (std::int64_t first = 0; first < s.channels; first += kChannelTile) {
      const std::int64_t width = std::min(kChannelTile, s.channels - first);
      fill_from_groups(mean + n * s.groups, 1, per_group, first, width, means);
      fill_from_groups(rstd + n * s.groups, 1, per_group, first, width, rstds);
      fill_from_groups(sums, 2, per_group, first, width, offsets);
      fill_from_groups(sums + 1, 2, per_group, first, width, slopes);
      for (std::int64_t c = 0; c < width; ++c) {
        offsets[at(c)] *= per_element;
        slopes[at(c)] *= per_element * rstds[at(c)] * rstds[at(c)];
      }
      const float *m = means.data(), *r = rstds.data(), *offset = offsets.data(), *slope = slopes.data();
      const float* weight = gamma + first;
      for (std::int64_t p = 0; p < s.pixels; ++p) {
        const std::int64_t i = image + p * s.channels + first;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) {
          const float centered = to_float(dy[i + c]) * weight[c] - offset[c];
          dx[i + c] = from_float<T>(r[c] * (centered - (to_float(x[i + c]) - m[c]) * slope[c]));
        }
      }
    }
  }
}

template <class T>
void group_norm_weight_grad_reduce(const GroupNormShape& s, const T* x, const T* dy, const float* mean,
                                   const float* rstd, float* partials, std::int64_t begin, std::int64_t end) {
  Tile means, rstds, sums, products;
  const std::int64_t per_group = s.channels / s.groups;
  for (std::int64_t n = begin; n < end; ++n) {
    const std::int64_t image = n * s.pixels * s.channels;
    for (std::int64_t first = 0; first < s.channels; first += kChannelTile) {
      const std::int64_t width = std::min(kChannelTile, s.channels - first);
      fill_from_groups(mean + n * s.groups, 1, per_group, first, width, means);
      fill_from_groups(rstd + n * s.groups, 1, per_group, first, width, rstds);
      channel_gradients(x + image + first, dy + image + first, means.data(), s.pixels, s.channels, width, sums,
                        products);
      float* partial = partials + n * 2 * s.channels + first;
      for (std::int64_t c = 0; c < width; ++c) {
        partial[c] = products[at(c)] * rstds[at(c)];
        partial[s.channels + c] = sums[at(c)];
      }
    }
  }
}

void group_norm_weight_grad(const GroupNormShape& s, const float* partials, float* dgamma, float* dbeta,
                            std::int64_t begin, std::int64_t end) {
  if (dgamma != nullptr) combine_partials(partials, s.batch, 2 * s.channels, dgamma, begin, end);
  if (dbeta != nullptr) combine_partials(partials + s.channels, s.batch, 2 * s.channels, dbeta, begin, end);
}

template void group_norm_forward(const GroupNormShape&, const float*, const float*, const float*, float, float*, float*,
                                 float*, std::int64_t, std::int64_t);
template void group_norm_forward(const GroupNormShape&, const bf16*, const float*, const float*, float, bf16*, float*,
                                 float*, std::int64_t, std::int64_t);
template void group_norm_input_grad(const GroupNormShape&, const float*, const float*, const float*, const float*,
                                    const float*, float*, float*, std::int64_t, std::int64_t);
template void group_norm_input_grad(const GroupNormShape&, const bf16*, const bf16*, const float*, const float*,
                                    const float*, float*, bf16*, std::int64_t, std::int64_t);
template void group_norm_weight_grad_reduce(const GroupNormShape&, const float*, const float*, const float*,
                                            const float*, float*, std::int64_t, std::int64_t);
template void group_norm_weight_grad_reduce(const GroupNormShape&, const bf16*, const bf16*, const float*, const float*,
                                            float*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
