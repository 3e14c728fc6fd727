#include "kernels/cpu/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/block.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

constexpr Activation kAll[] = {Activation::relu,    Activation::gelu, Activation::gelu_tanh,  Activation::silu,
                               Activation::sigmoid, Activation::tanh, Activation::hard_swish, Activation::hard_sigmoid};

double reference(Activation activation, double x) {
  switch (activation) {
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu:
      return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::hard_swish:
      return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case Activation::hard_sigmoid:
      return std::clamp(x + 3, 0.0, 6.0) / 6;
  }
  return 0;
}

double reference_slope(Activation activation, double x) {
  const double h = 1e-5;
  return (reference(activation, x + h) - reference(activation, x - h)) / (2 * h);
}

// Random inputs that keep clear of the kinks at -3, 0 and 3, where there is no derivative.
template <class T>
std::vector<T> inputs(std::int64_t count) {
  std::vector<T> x = random_tensor<T>(count, 7, -8.0f, 8.0f);
  for (T& value : x) {
    const float v = to_float(value);
    for (const float kink : {-3.0f, 0.0f, 3.0f}) {
      if (std::fabs(v - kink) < 0.01f) value = from_float<T>(kink + 0.5f);
    }
  }
  return x;
}

constexpr std::int64_t kCounts[] = {1, 3, 17, 1023, 1024, 1025, 5000, 20011};

template <class T>
void check_forward() {
  for (const Activation activation : kAll) {
    for (const std::int64_t count : kCounts) {
      const std::vector<T> x = inputs<T>(count);
      const auto y = run_whole_and_split<T>(count, blocks_of(count), [&](T* out, std::int64_t begin, std::int64_t end) {
        activation_forward(activation, x.data(), out, count, begin, end);
      });
      const auto in_place = run_whole_and_split<T>(
          count, blocks_of(count),
          [&](T* out, std::int64_t begin, std::int64_t end) {
            activation_forward(activation, out, out, count, begin, end);
          },
          &x);
      EXPECT_EQ(to_doubles(y), to_doubles(in_place));
      std::vector<double> want;
      for (const double v : to_doubles(x)) want.push_back(reference(activation, v));
      SCOPED_TRACE(static_cast<int>(activation));
      expect_close(y, want, 4e-7, 0.1);  // in the tail of gelu the rounding of the exponent grows
    }
  }
}

template <class T>
void check_backward() {
  for (const Activation activation : kAll) {
    EXPECT_NE(backward_needs_input(activation), backward_needs_output(activation));
    for (const std::int64_t count : kCounts) {
      const std::vector<T> x = inputs<T>(count);
      const std::vector<T> dy = random_tensor<T>(count, 8);
      std::vector<T> y(x.size());
      activation_forward(activation, x.data(), y.data(), count, 0, blocks_of(count));
      const T* input = backward_needs_input(activation) ? x.data() : nullptr;
      const T* output = backward_needs_output(activation) ? y.data() : nullptr;
      const auto dx =
          run_whole_and_split<T>(count, blocks_of(count), [&](T* out, std::int64_t begin, std::int64_t end) {
            activation_backward(activation, input, output, dy.data(), out, count, begin, end);
          });
      const auto in_place = run_whole_and_split<T>(
          count, blocks_of(count),
          [&](T* out, std::int64_t begin, std::int64_t end) {
            activation_backward(activation, input, output, out, out, count, begin, end);
          },
          &dy);
      EXPECT_EQ(to_doubles(dx), to_doubles(in_place));
      std::vector<double> want;
      for (std::size_t i = 0; i < x.size(); ++i) {
        want.push_back(reference_slope(activation, static_cast<double>(to_float(x[i]))) *
                       static_cast<double>(to_float(dy[i])));
      }
      SCOPED_TRACE(static_cast<int>(activation));
      // A slope computed from y inherits the rounding of y: up to 2 |y| ulps of 1.
      expect_close(dx, want, 1e-6 + (output != nullptr ? 4 * kRounding<T> : 0), 1.0);
    }
  }
}

TEST(ActivationKernel, ForwardFloat) { check_forward<float>(); }
TEST(ActivationKernel, ForwardBf16) { check_forward<bf16>(); }
TEST(ActivationKernel, BackwardFloat) { check_backward<float>(); }
TEST(ActivationKernel, BackwardBf16) { check_backward<bf16>(); }

TEST(ActivationKernel, ReluUsesOutput) {
  EXPECT_TRUE(backward_needs_output(Activation::relu));
  EXPECT_TRUE(backward_needs_output(Activation::sigmoid));
  EXPECT_TRUE(backward_needs_output(Activation::tanh));
  EXPECT_TRUE(backward_needs_input(Activation::gelu));
  EXPECT_TRUE(backward_needs_input(Activation::hard_sigmoid));
}

// The tail of the exact gelu keeps its relative accuracy, where x (1 + erf) / 2 would be all rounding error.
TEST(ActivationKernel, GeluTail) {
  for (float x = -12.0f; x < -0.1f; x += 0.125f) {
    float y = 0;
    activation_forward(Activation::gelu, &x, &y, 1, 0, 1);
    const double want = reference(Activation::gelu, static_cast<double>(x));
    EXPECT_NEAR(static_cast<double>(y), want, 6e-6 * std::fabs(want)) << x;
  }
}

TEST(ActivationKernel, NanStaysNan) {
  for (const Activation activation : kAll) {
    const float x = std::numeric_limits<float>::quiet_NaN();
    float y = 0;
    activation_forward(activation, &x, &y, 1, 0, 1);
    EXPECT_TRUE(std::isnan(y)) << static_cast<int>(activation);
  }
}

}  // namespace
}  // namespace overtake::kernels
