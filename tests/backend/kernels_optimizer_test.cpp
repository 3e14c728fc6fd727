#include "kernels/cpu/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/block.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

constexpr std::int64_t kCounts[] = {1, 17, 1023, 1025, 5003};
constexpr int kSteps = 4;

std::vector<float> gradient(std::int64_t count, int step) {
  return random_tensor<float>(count, 20 + static_cast<std::uint32_t>(step));
}

void check_sgd(const SgdStep& sgd, const float* grad_scale) {
  for (const std::int64_t count : kCounts) {
    std::vector<float> weight = random_tensor<float>(count, 1), momentum(index(count), 0.0f);
    std::vector<double> want = to_doubles(weight), buffer(index(count), 0.0);
    for (int step = 0; step < kSteps; ++step) {
      const auto grad = gradient(count, step);
      // Weight and momentum side by side, so that both are compared.
      std::vector<float> state = weight;
      state.insert(state.end(), momentum.begin(), momentum.end());
      state = run_whole_and_split<float>(
          2 * count, blocks_of(count),
          [&](float* both, std::int64_t begin, std::int64_t end) {
            float* second = sgd.momentum == 0.0f ? nullptr : both + count;
            sgd_update(sgd, grad.data(), grad_scale, both, second, count, begin, end);
          },
          &state);
      weight.assign(state.begin(), state.begin() + count);
      momentum.assign(state.begin() + count, state.end());
      const double rate = static_cast<double>(sgd.learning_rate), keep = static_cast<double>(sgd.momentum);
      for (std::size_t i = 0; i < want.size(); ++i) {
        double g = static_cast<double>(grad[i]) * (grad_scale != nullptr ? static_cast<double>(*grad_scale) : 1.0);
        g += static_cast<double>(sgd.weight_decay) * want[i];
        if (keep != 0) {
          buffer[i] = keep * buffer[i] + g;
          g = sgd.nesterov ? g + keep * buffer[i] : buffer[i];
        }
        want[i] -= rate * g;
      }
    }
    expect_close(weight, want, 3e-7, 2.0);
    if (sgd.momentum != 0.0f) expect_close(momentum, buffer, 3e-7, 4.0);
  }
}

TEST(OptimizerKernel, Sgd) {
  const float half = 0.5f;
  check_sgd({.learning_rate = 0.1f, .momentum = 0.0f, .weight_decay = 0.0f, .nesterov = false}, nullptr);
  check_sgd({.learning_rate = 0.1f, .momentum = 0.0f, .weight_decay = 0.01f, .nesterov = false}, &half);
  check_sgd({.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = false}, nullptr);
  check_sgd({.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true}, &half);
}

// Numbers from torch.optim.SGD(lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True) worked out by hand for w = 1,
// gradients 0.5 then -0.25: g = 0.51, m = 0.51, w = 1 - 0.1 (0.51 + 0.459) = 0.9031; g = -0.240969, m = 0.218031,
// w = 0.9031 - 0.1 (-0.240969 + 0.1962279) = 0.90757411.
TEST(OptimizerKernel, SgdByHand) {
  const SgdStep sgd{.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true};
  float weight = 1.0f, momentum = 0.0f, grad = 0.5f;
  sgd_update(sgd, &grad, nullptr, &weight, &momentum, 1, 0, 1);
  EXPECT_NEAR(weight, 0.9031, 1e-6);
  grad = -0.25f;
  sgd_update(sgd, &grad, nullptr, &weight, &momentum, 1, 0, 1);
  EXPECT_NEAR(weight, 0.90757411, 1e-6);
}

TEST(OptimizerKernel, AdamW) {
  const float scale = 0.25f;
  for (const std::int64_t count : kCounts) {
    std::vector<float> weight = random_tensor<float>(count, 1), first(index(count), 0.0f), second(index(count), 0.0f);
    std::vector<double> want = to_doubles(weight), m(index(count), 0.0), v(index(count), 0.0);
    for (int step = 1; step <= kSteps; ++step) {
      const AdamWStep adamw{
          .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1, .step = step};
      const auto grad = gradient(count, step);
      std::vector<float> state = weight;
      state.insert(state.end(), first.begin(), first.end());
      state.insert(state.end(), second.begin(), second.end());
      state = run_whole_and_split<float>(
          3 * count, blocks_of(count),
          [&](float* all, std::int64_t begin, std::int64_t end) {
            adamw_update(adamw, grad.data(), &scale, all, all + count, all + 2 * count, count, begin, end);
          },
          &state);
      weight.assign(state.begin(), state.begin() + count);
      first.assign(state.begin() + count, state.begin() + 2 * count);
      second.assign(state.begin() + 2 * count, state.end());
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double g = static_cast<double>(grad[i]) * static_cast<double>(scale);
        want[i] *= 1 - adamw.learning_rate * adamw.weight_decay;
        m[i] = adamw.beta1 * m[i] + (1 - adamw.beta1) * g;
        v[i] = adamw.beta2 * v[i] + (1 - adamw.beta2) * g * g;
        const double m_hat = m[i] / (1 - std::pow(adamw.beta1, step));
        const double v_hat = v[i] / (1 - std::pow(adamw.beta2, step));
        want[i] -= adamw.learning_rate * m_hat / (std::sqrt(v_hat) + adamw.epsilon);
      }
    }
    expect_close(weight, want, 4e-7, 0.5);
    expect_close(first, m, 3e-7, 0.5);
    expect_close(second, v, 1e-6);
  }
}

TEST(OptimizerKernel, NormAndClipFactor) {
  std::vector<double> sums;
  double sum = 0;
  for (const std::int64_t count : kCounts) {
    const auto grad = random_tensor<float>(count, 30);
    const auto partials = run_whole_and_split<double>(blocks_of(count), blocks_of(count),
                                                      [&](double* out, std::int64_t begin, std::int64_t end) {
                                                        squared_norm_partials(grad.data(), out, count, begin, end);
                                                      });
    sums.push_back(sum_of_partials(partials.data(), std::ssize(partials)));
    double own = 0;
    for (const double g : to_doubles(grad)) own += g * g;
    EXPECT_NEAR(sums.back(), own, 1e-12 * own);
    sum += own;
  }
  const double norm = std::sqrt(sum);
  float result[2];
  clip_factor(sums.data(), nullptr, std::ssize(sums), 1.0f, result);
  EXPECT_NEAR(static_cast<double>(result[0]), norm, 1e-7 * norm);
  EXPECT_NEAR(static_cast<double>(result[1]), 1.0 / (norm + 1e-6), 1e-7);
  clip_factor(sums.data(), nullptr, std::ssize(sums), 1e6f, result);
  EXPECT_EQ(result[1], 1.0f);
}

// Some of the sums, in an order of their own.
TEST(OptimizerKernel, ClipFactorTakesSumsInOrder) {
  const double sums[] = {1e30, 4, -1, 9};
  const std::int64_t order[] = {3, 1};
  float result[2];
  clip_factor(sums, order, 2, 2.0f, result);
  EXPECT_FLOAT_EQ(result[0], std::sqrt(13.0f));
  EXPECT_FLOAT_EQ(result[1], 2.0f / std::sqrt(13.0f));
}

TEST(OptimizerKernel, NormOfHugeAndBrokenGradients) {
  const std::vector<float> huge(10, 1e30f);
  double partial = 0;
  float result[2];
  squared_norm_partials(huge.data(), &partial, 10, 0, 1);
  clip_factor(&partial, nullptr, 1, 1.0f, result);
  EXPECT_NEAR(static_cast<double>(result[0]) / 1e30, std::sqrt(10.0), 1e-6);
  EXPECT_NEAR(static_cast<double>(result[1]) * 1e30, 1 / std::sqrt(10.0), 1e-6);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    squared_norm_partials(&bad, &partial, 1, 0, 1);
    clip_factor(&partial, nullptr, 1, 1.0f, result);
    EXPECT_FALSE(std::isfinite(result[0]));
    EXPECT_TRUE(std::isnan(result[1]));
  }
}

}  // namespace
}  // namespace overtake::kernels
