#include "kernels/cpu/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/block.h"
#include "kernels/cpu/blocked_sum.h"
#include "kernels/cpu/vector_math.h"

namespace overtake::kernels {

namespace {

bool in_range(const CrossEntropy& loss, std::int32_t label) { return label >= 0 && label < loss.classes; }

bool counts(const CrossEntropy& loss, std::int32_t label) {
  return label != loss.ignore_index && in_range(loss, label);
}

template <class T>
float largest_of(const T* x, std::int64_t size) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < size; ++i) {
    const float v = to_float(x[i]);
    largest = v > largest ? v : largest;
  }
  return largest;
}

template <class T>
double sum_of(const T* x, std::int64_t size) {
  return blocked_sum(size, [=](std::int64_t i) { return to_float(x[i]); });
}

template <class T>
double log_sum_exp(const T* x, std::int64_t size, float largest) {
  const double sum = blocked_sum(size, [=](std::int64_t i) { return exp_fast(to_float(x[i]) - largest); });
  return static_cast<double>(largest) + std::log(sum);
}

// Whether `label` is the first index of the largest element.
template <class T>
bool is_first_largest(const T* x, std::int64_t label, float largest) {
  if (to_float(x[label]) != largest) return false;
  return std::none_of(x, x + label, [&](T v) { return to_float(v) == largest; });
}

// dx [size] = e^(x - lse) * scale - floor.
template <class T>
void scaled_softmax(const T* x, float lse, float scale, float floor, T* dx, std::int64_t size) {
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) dx[i] = from_float<T>(exp_fast(to_float(x[i]) - lse) * scale - floor);
}

template <class T>
double squared_error(const T* x, const float* target, std::int64_t size) {
  return blocked_sum(size, [=](std::int64_t i) {
    const float difference = to_float(x[i]) - target[i];
    return difference * difference;
  });
}

template <class T>
void scaled_difference(const T* x, const float* target, float scale, T* dx, std::int64_t size) {
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) dx[i] = from_float<T>((to_float(x[i]) - target[i]) * scale);
}

}  // namespace

template <class T>
std::int64_t cross_entropy_forward(const CrossEntropy& loss, const T* logits, const std::int32_t* labels,
                                   float* row_loss, float* row_lse, float* row_correct, std::int64_t begin,
                                   std::int64_t end) {
  std::int64_t first_bad = -1;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = logits + row * loss.width;
    const std::int32_t label = labels[row];
    const float largest = largest_of(x, loss.classes);
    const double lse = log_sum_exp(x, loss.classes, largest);
    row_lse[row] = static_cast<float>(lse);
    row_loss[row] = row_correct[row] = 0.0f;
    if (!counts(loss, label)) {
      if (label != loss.ignore_index && first_bad < 0) first_bad = row;
      continue;
    }
    const auto smoothing = static_cast<double>(loss.smoothing);
    double expected = (1.0 - smoothing) * static_cast<double>(to_float(x[label]));  // mean logit under the target
    if (smoothing > 0) {
      expected += smoothing * sum_of(x, loss.classes) / static_cast<double>(loss.classes);
    }
    row_loss[row] = static_cast<float>(lse - expected);
    row_correct[row] = is_first_largest(x, label, largest) ? 1.0f : 0.0f;
  }
  return first_bad;
}

void cross_entropy_combine(const CrossEntropy& loss, const float* row_loss, const float* row_correct,
                           const std::int32_t* labels, std::int64_t rows, float* stats) {
  double sum = 0;
  std::int64_t counted = 0, correct = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (!counts(loss, labels[row])) continue;
    sum += static_cast<double>(row_loss[row]);
    ++counted;
    if (row_correct[row] != 0.0f) ++correct;
  }
  stats[0] = counted > 0 ? static_cast<float>(sum / static_cast<double>(counted)) : 0.0f;
  stats[1] = static_cast<float>(counted);
  stats[2] = static_cast<float>(correct);
}

template <class T>
void cross_entropy_input_grad(const CrossEntropy& loss, const T* logits, const std::int32_t* labels,
                              const float* row_lse, const float* count, float scale, T* dlogits, std::int64_t begin,
                              std::int64_t end) {
  const float row_scale = *count > 0.0f ? scale / *count : 0.0f;
  const float floor = loss.smoothing / static_cast<float>(loss.classes);  // the target of every other class
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = logits + row * loss.width;
    T* dx = dlogits + row * loss.width;
    const std::int32_t label = labels[row];
    if (!counts(loss, label)) {
      std::fill(dx, dx + loss.width, from_float<T>(0.0f));
      continue;
    }
    // The label's entry first: dx may overwrite x.
    const float probability = exp_fast(to_float(x[label]) - row_lse[row]);
    const float at_label = (probability - (1.0f - loss.smoothing) - floor) * row_scale;
    scaled_softmax(x, row_lse[row], row_scale, floor * row_scale, dx, loss.classes);
    dx[label] = from_float<T>(at_label);
    std::fill(dx + loss.classes, dx + loss.width, from_float<T>(0.0f));
  }
}

template <class T>
void mean_squared_error_forward(const T* x, const float* target, double* partials, std::int64_t count,
                                std::int64_t block_begin, std::int64_t block_end) {
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    partials[first / kBlock] = squared_error(x + first, target + first, size);
  });
}

void mean_squared_error_combine(const double* partials, std::int64_t count, float* loss) {
  double sum = 0;
  for (std::int64_t block = 0; block < blocks_of(count); ++block) sum += partials[block];
  *loss = static_cast<float>(sum / static_cast<double>(count));
}

template <class T>
void mean_squared_error_input_grad(const T* x, const float* target, float scale, T* dx, std::int64_t count,
                                   std::int64_t block_begin, std::int64_t block_end) {
  const auto factor = static_cast<float>(2.0 * static_cast<double>(scale) / static_cast<double>(count));
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    scaled_difference(x + first, target + first, factor, dx + first, size);
  });
}

template std::int64_t cross_entropy_forward(const CrossEntropy&, const float*, const std::int32_t*, float*, float*,
                                            float*, std::int64_t, std::int64_t);
template std::int64_t cross_entropy_forward(const CrossEntropy&, const bf16*, const std::int32_t*, float*, float*,
                                            float*, std::int64_t, std::int64_t);
template void cross_entropy_input_grad(const CrossEntropy&, const float*, const std::int32_t*, const float*,
                                       const float*, float, float*, std::int64_t, std::int64_t);
template void cross_entropy_input_grad(const CrossEntropy&, const bf16*, const std::int32_t*, const float*,
                                       const float*, float, bf16*, std::int64_t, std::int64_t);
template void mean_squared_error_forward(const float*, const float*, double*, std::int64_t, std::int64_t, std::int64_t);
template void mean_squared_error_forward(const bf16*, const float*, double*, std::int64_t, std::int64_t, std::int64_t);
template void mean_squared_error_input_grad(const float*, const float*, float, float*, std::int64_t, std::int64_t,
                                            std::int64_t);
template void mean_squared_error_input_grad(const bf16*, const float*, float, bf16*, std::int64_t, std::int64_t,
                                            std::int64_t);

}  // namespace overtake::kernels
