#include "kernels/cpu/optimizer.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/block.h"

namespace overtake::kernels {

namespace {

void sgd_block(const SgdStep& sgd, const float* grad, float grad_scale, float* weight, std::int64_t size) {
  const float rate = sgd.learning_rate, decay = sgd.weight_decay;
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) {
    const float g = grad[i] * grad_scale + decay * weight[i];
    weight[i] -= rate * g;
  }
}

template <bool nesterov>
void sgd_momentum_block(const SgdStep& sgd, const float* grad, float grad_scale, float* weight, float* momentum,
                        std::int64_t size) {
  const float rate = sgd.learning_rate, decay = sgd.weight_decay, keep = sgd.momentum;
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) {
    const float g = grad[i] * grad_scale + decay * weight[i];
    const float m = keep * momentum[i] + g;
    momentum[i] = m;
    weight[i] -= rate * (nesterov ? g + keep * m : m);
  }
}

// The numbers of one AdamW step, computed in double as PyTorch does.
struct AdamWFactors {
  float keep_weight;   // 1 - learning_rate * weight_decay
  float beta1, beta2;  // and one minus each
  float rest1, rest2;
  float step_size;     // learning_rate / (1 - beta1^step)
  float inverse_root;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
};

AdamWFactors factors_of(const AdamWStep& adamw) {
  const auto step = static_cast<double>(adamw.step);
  const double correction1 = 1.0 - std::pow(adamw.beta1, step), correction2 = 1.0 - std::pow(adamw.beta2, step);
  return {.keep_weight = static_cast<float>(1.0 - adamw.learning_rate * adamw.weight_decay),
          .beta1 = static_cast<float>(adamw.beta1),
          .beta2 = static_cast<float>(adamw.beta2),
          .rest1 = static_cast<float>(1.0 - adamw.beta1),
          .rest2 = static_cast<float>(1.0 - adamw.beta2),
          .step_size = static_cast<float>(adamw.learning_rate / correction1),
          .inverse_root = static_cast<float>(1.0 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(adamw.epsilon)};
}

void adamw_block(const AdamWFactors f, const float* grad, float grad_scale, float* weight, float* first_moment,
                 float* second_moment, std::int64_t size) {
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) {
    const float g = grad[i] * grad_scale;
    const float m = f.beta1 * first_moment[i] + f.rest1 * g;
    const float v = f.beta2 * second_moment[i] + f.rest2 * g * g;
    first_moment[i] = m;
    second_moment[i] = v;
    weight[i] = f.keep_weight * weight[i] - f.step_size * (m / (std::sqrt(v) * f.inverse_root + f.epsilon));
  }
}

double squared_norm(const float* x, std::int64_t size) {
  double sum = 0;  // in double: the square of a large float overflows
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < size; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace

void sgd_update(const SgdStep& sgd, const float* grad, const float* grad_scale, float* weight, float* momentum,
                std::int64_t count, std::int64_t block_begin, std::int64_t block_end) {
  const float scale = grad_scale == nullptr ? 1.0f : *grad_scale;
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    if (sgd.momentum == 0.0f) {
      sgd_block(sgd, grad + first, scale, weight + first, size);
    } else if (sgd.nesterov) {
      sgd_momentum_block<true>(sgd, grad + first, scale, weight + first, momentum + first, size);
    } else {
      sgd_momentum_block<false>(sgd, grad + first, scale, weight + first, momentum + first, size);
    }
  });
}

void adamw_update(const AdamWStep& adamw, const float* grad, const float* grad_scale, float* weight,
                  float* first_moment, float* second_moment, std::int64_t count, std::int64_t block_begin,
                  std::int64_t block_end) {
  const float scale = grad_scale == nullptr ? 1.0f : *grad_scale;
  const AdamWFactors factors = factors_of(adamw);
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    adamw_block(factors, grad + first, scale, weight + first, first_moment + first, second_moment + first, size);
  });
}

void squared_norm_partials(const float* grad, double* partials, std::int64_t count, std::int64_t block_begin,
                           std::int64_t block_end) {
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    partials[first / kBlock] = squared_norm(grad + first, size);
  });
}

double sum_of_partials(const double* partials, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += partials[i];
  return sum;
}

void clip_factor(const double* sums, const std::int64_t* order, std::int64_t count, float max_norm, float* result) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += sums[order == nullptr ? i : order[i]];
  const double norm = std::sqrt(sum);
  const double factor = static_cast<double>(max_norm) / (norm + 1e-6);
  result[0] = static_cast<float>(norm);
  result[1] = !std::isfinite(norm) ? std::numeric_limits<float>::quiet_NaN()
              : factor > 1.0       ? 1.0f
                                   : static_cast<float>(factor);
}

}  // namespace overtake::kernels
