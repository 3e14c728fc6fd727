#include "kernels/cpu/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/block.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

// Each function, and where its inputs are taken from: away from poles, and where results stay near 1.
struct Case {
  ActivationFunction function;
  float low = -8.0f, high = 8.0f;
};
constexpr Case kCases[] = {{{Activation::relu}},
                           {{Activation::gelu}},
                           {{Activation::gelu_tanh}},
                           {{Activation::silu}},
                           {{Activation::sigmoid}},
                           {{Activation::tanh}},
                           {{Activation::hard_swish}},
                           {{Activation::hard_sigmoid}},
                           {{Activation::exp}, -8.0f, 4.0f},
                           {{Activation::log}, 0.01f, 8.0f},
                           {{Activation::sqrt}, 0.01f, 8.0f},
                           {{Activation::reciprocal}, 0.25f, 8.0f},
                           {{Activation::reciprocal}, -8.0f, -0.25f},
                           {{Activation::erf}},
                           {{Activation::abs}},
                           {{Activation::softplus}, -30.0f, 30.0f},
                           {{Activation::mish}, -30.0f, 30.0f},
                           {{Activation::leaky_relu, 0.2f}},
                           {{Activation::leaky_relu, -1.5f}},
                           {{Activation::elu, 1.0f}},
                           {{Activation::elu, 0.7f}, -40.0f, 2.0f},
                           {{Activation::maximum, -0.5f}},
                           {{Activation::clip, -0.5f, 1.25f}},
                           {{Activation::clip, -std::numeric_limits<float>::infinity(), 2.0f}}};

double reference(const ActivationFunction& function, double x) {
  const double a = static_cast<double>(function.a), b = static_cast<double>(function.b);
  switch (function.kind) {
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
    case Activation::exp:
      return std::exp(x);
    case Activation::log:
      return std::log(x);
    case Activation::sqrt:
      return std::sqrt(x);
    case Activation::reciprocal:
      return 1 / x;
    case Activation::erf:
      return std::erf(x);
    case Activation::abs:
      return std::fabs(x);
    case Activation::softplus:
      return std::log1p(std::exp(x));
    case Activation::mish:
      return x * std::tanh(std::log1p(std::exp(x)));
    case Activation::leaky_relu:
      return x > 0 ? x : a * x;
    case Activation::elu:
      return x > 0 ? x : a * std::expm1(x);
    case Activation::maximum:
      return std::max(x, a);
    case Activation::clip:
      return std::clamp(x, a, b);
  }
  return 0;
}

double reference_slope(const ActivationFunction& function, double x) {
  const double h = 1e-5;
  return (reference(function, x + h) - reference(function, x - h)) / (2 * h);
}

// Random inputs that keep clear of kinks, where there is no derivative.
template <class T>
std::vector<T> inputs(const Case& c, std::int64_t count) {
  std::vector<T> x = random_tensor<T>(count, 7, c.low, c.high);
  for (T& value : x) {
    const float v = to_float(value);
    for (const float kink : {-3.0f, 0.0f, 3.0f, c.function.a, c.function.b}) {
      if (std::fabs(v - kink) < 0.01f) value = from_float<T>(kink + 0.05f);
    }
  }
  return x;
}

constexpr std::int64_t kCounts[] = {1, 3, 17, 1023, 1024, 1025, 5000, 20011};

template <class T>
void check_forward() {
  for (const Case& c : kCases) {
    const ActivationFunction& function = c.function;
    for (const std::int64_t count : kCounts) {
      const std::vector<T> x = inputs<T>(c, count);
      const auto y = run_whole_and_split<T>(count, blocks_of(count), [&](T* out, std::int64_t begin, std::int64_t end) {
        activation_forward(function, x.data(), out, count, begin, end);
      });
      const auto in_place = run_whole_and_split<T>(
          count, blocks_of(count),
          [&](T* out, std::int64_t begin, std::int64_t end) {
            activation_forward(function, out, out, count, begin, end);
          },
          &x);
      EXPECT_EQ(to_doubles(y), to_doubles(in_place));
      std::vector<double> want;
      for (const double v : to_doubles(x)) want.push_back(reference(function, v));
      SCOPED_TRACE(static_cast<int>(function.kind));
      expect_close(y, want, 4e-7, 0.1);  // in the tail of gelu the rounding of the exponent grows
    }
  }
}

template <class T>
void check_backward() {
  for (const Case& c : kCases) {
    const ActivationFunction& function = c.function;
    EXPECT_NE(backward_needs_input(function.kind), backward_needs_output(function.kind));
    for (const std::int64_t count : kCounts) {
      const std::vector<T> x = inputs<T>(c, count);
      const std::vector<T> dy = random_tensor<T>(count, 8);
      std::vector<T> y(x.size());
      activation_forward(function, x.data(), y.data(), count, 0, blocks_of(count));
      const T* input = backward_needs_input(function.kind) ? x.data() : nullptr;
      const T* output = backward_needs_output(function.kind) ? y.data() : nullptr;
      const auto dx =
          run_whole_and_split<T>(count, blocks_of(count), [&](T* out, std::int64_t begin, std::int64_t end) {
            activation_backward(function, input, output, dy.data(), out, count, begin, end);
          });
      const auto in_place = run_whole_and_split<T>(
          count, blocks_of(count),
          [&](T* out, std::int64_t begin, std::int64_t end) {
            activation_backward(function, input, output, out, out, count, begin, end);
          },
          &dy);
      EXPECT_EQ(to_doubles(dx), to_doubles(in_place));
      std::vector<double> want;
      for (std::size_t i = 0; i < x.size(); ++i) {
        want.push_back(reference_slope(function, static_cast<double>(to_float(x[i]))) *
                       static_cast<double>(to_float(dy[i])));
      }
      SCOPED_TRACE(static_cast<int>(function.kind));
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
  EXPECT_TRUE(backward_needs_output(Activation::exp));
  EXPECT_TRUE(backward_needs_output(Activation::sqrt));
  EXPECT_TRUE(backward_needs_output(Activation::reciprocal));
  EXPECT_TRUE(backward_needs_input(Activation::gelu));
  EXPECT_TRUE(backward_needs_input(Activation::hard_sigmoid));
}

// The tail of the exact gelu keeps its relative accuracy, where x (1 + erf) / 2 would be all rounding error.
TEST(ActivationKernel, GeluTail) {
  for (float x = -12.0f; x < -0.1f; x += 0.125f) {
    float y = 0;
    activation_forward(ActivationFunction{Activation::gelu}, &x, &y, 1, 0, 1);
    const double want = reference({Activation::gelu}, static_cast<double>(x));
    EXPECT_NEAR(static_cast<double>(y), want, 6e-6 * std::fabs(want)) << x;
  }
}

float value_of(const ActivationFunction& function, float x) {
  float y = 0;
  activation_forward(function, &x, &y, 1, 0, 1);
  return y;
}

float slope_of(const ActivationFunction& function, float x) {
  const float y = value_of(function, x), dy = 1.0f;
  float dx = 0;
  activation_backward(function, &x, &y, &dy, &dx, 1, 0, 1);
  return dx;
}

// What PyTorch does where a function has no derivative: clamp, relu6, hardtanh, maximum, hardswish, hardsigmoid, ...
TEST(ActivationKernel, SlopesAtKinks) {
  const ActivationFunction clip{Activation::clip, -1.0f, 2.0f};
  EXPECT_EQ(slope_of(clip, -1.0f), 0.0f);
  EXPECT_EQ(slope_of(clip, 2.0f), 0.0f);
  EXPECT_EQ(slope_of(clip, std::nextafter(2.0f, 1.0f)), 1.0f);
  EXPECT_EQ(slope_of(clip, std::nextafter(-1.0f, 1.0f)), 1.0f);
  EXPECT_EQ(slope_of({Activation::maximum, 2.0f}, 2.0f), 0.5f);
  EXPECT_EQ(slope_of({Activation::maximum, 0.0f}, -0.0f), 0.5f);
  EXPECT_EQ(slope_of({Activation::hard_swish}, -3.0f), 0.0f);
  EXPECT_EQ(slope_of({Activation::hard_swish}, 3.0f), 1.0f);
  EXPECT_EQ(slope_of({Activation::hard_sigmoid}, -3.0f), 0.0f);
  EXPECT_EQ(slope_of({Activation::hard_sigmoid}, 3.0f), 0.0f);
  EXPECT_EQ(slope_of({Activation::abs}, 0.0f), 0.0f);
  EXPECT_EQ(slope_of({Activation::leaky_relu, 0.25f}, 0.0f), 0.25f);
  EXPECT_EQ(slope_of({Activation::elu, 0.5f}, 0.0f), 0.5f);
  EXPECT_EQ(slope_of({Activation::relu}, 0.0f), 0.0f);
}

// Where a formula written down carelessly overflows, cancels or divides by zero.
TEST(ActivationKernel, Extremes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float x : {20.0f, 100.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(value_of({Activation::softplus}, x), x);
    EXPECT_EQ(value_of({Activation::mish}, x), x);
    EXPECT_NEAR(slope_of({Activation::softplus}, x), 1.0f, 1e-7f);
    EXPECT_NEAR(slope_of({Activation::mish}, std::min(x, 1e30f)), 1.0f, 1e-7f);
  }
  for (const float x : {-20.0f, -60.0f, -80.0f}) {  // as small as e^x, and as exact
    const double e = std::exp(static_cast<double>(x));
    EXPECT_NEAR(static_cast<double>(value_of({Activation::softplus}, x)), e, 1e-6 * e);
    EXPECT_NEAR(static_cast<double>(slope_of({Activation::softplus}, x)), e, 1e-6 * e);
    EXPECT_NEAR(static_cast<double>(value_of({Activation::mish}, x)), static_cast<double>(x) * e, 1e-4 * e);
  }
  for (const float x : {-1e-3f, -1e-6f, -1e-20f}) {
    const double want = std::expm1(static_cast<double>(x));
    EXPECT_NEAR(static_cast<double>(value_of({Activation::elu, 1.0f}, x)), want, 4e-7 * std::fabs(want));
  }
  EXPECT_EQ(value_of({Activation::elu, 2.0f}, -kInfinity), -2.0f);
  EXPECT_EQ(value_of({Activation::log}, 0.0f), -kInfinity);
  EXPECT_EQ(value_of({Activation::reciprocal}, 0.0f), kInfinity);
  EXPECT_EQ(value_of({Activation::exp}, 1e3f), kInfinity);
  EXPECT_TRUE(std::isnan(value_of({Activation::log}, -1.0f)));
  EXPECT_TRUE(std::isnan(value_of({Activation::sqrt}, -1.0f)));
  EXPECT_EQ(value_of({Activation::clip, -kInfinity, kInfinity}, -1e38f), -1e38f);
}

TEST(ActivationKernel, NanStaysNan) {
  for (const Case& c : kCases) {
    const float x = std::numeric_limits<float>::quiet_NaN();
    float y = 0;
    activation_forward(c.function, &x, &y, 1, 0, 1);
    EXPECT_TRUE(std::isnan(y)) << static_cast<int>(c.function.kind);
  }
}

}  // namespace
}  // namespace overtake::kernels
