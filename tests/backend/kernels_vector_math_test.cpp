// The vector functions against the standard library's in double, over all floats (every 61st bit pattern), with the
// error bounds their header promises.

#include "kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace overtake::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kSmallestNormal = std::numeric_limits<float>::min();

struct Worst {
  double error = 0;
  float at = 0;
};

// Largest relative error over finite floats x with low <= x <= high, skipping results that are not normal floats.
template <class Fast, class Exact>
Worst worst_relative_error(const Fast& fast, const Exact& exact, float low, float high) {
  Worst worst;
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 61) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const double expected = exact(static_cast<double>(x));
    if (std::fabs(expected) < kSmallestNormal) continue;
    const double error = std::fabs(static_cast<double>(fast(x)) - expected) / std::fabs(expected);
    if (!(error <= worst.error)) worst = {error, x};
  }
  return worst;
}

TEST(VectorMath, Exp) {
  const Worst worst = worst_relative_error(
      exp_fast, [](double x) { return std::exp(x); }, -87.336f, 88.722831f);
  EXPECT_LT(worst.error, 2e-7) << "at " << worst.at;
  EXPECT_EQ(exp_fast(0.0f), 1.0f);
  EXPECT_EQ(exp_fast(-87.34f), 0.0f);
  EXPECT_EQ(exp_fast(-1e30f), 0.0f);
  EXPECT_EQ(exp_fast(-kInfinity), 0.0f);
  EXPECT_EQ(exp_fast(88.73f), kInfinity);
  EXPECT_EQ(exp_fast(1e30f), kInfinity);
  EXPECT_EQ(exp_fast(kInfinity), kInfinity);
}

TEST(VectorMath, ExpMinusOne) {
  const Worst worst = worst_relative_error(
      expm1_negative_fast, [](double x) { return std::expm1(x); }, -kInfinity, 0.0f);
  EXPECT_LT(worst.error, 2e-7) << "at " << worst.at;
  EXPECT_EQ(expm1_negative_fast(0.0f), 0.0f);
  EXPECT_EQ(expm1_negative_fast(-kInfinity), -1.0f);
}

TEST(VectorMath, Log) {
  const Worst worst = worst_relative_error(
      log_fast, [](double x) { return std::log(x); }, std::numeric_limits<float>::denorm_min(),
      std::numeric_limits<float>::max());
  EXPECT_LT(worst.error, 3e-7) << "at " << worst.at;
  EXPECT_EQ(log_fast(1.0f), 0.0f);
  EXPECT_EQ(log_fast(0.0f), -kInfinity);
  EXPECT_EQ(log_fast(-0.0f), -kInfinity);
  EXPECT_EQ(log_fast(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(log_fast(-1e-30f)));
  EXPECT_TRUE(std::isnan(log_fast(-kInfinity)));
}

TEST(VectorMath, LogOfOnePlus) {
  const Worst worst = worst_relative_error(
      log1p_fast, [](double x) { return std::log1p(x); }, 0.0f, 1.0f);
  EXPECT_LT(worst.error, 3e-7) << "at " << worst.at;
  EXPECT_EQ(log1p_fast(0.0f), 0.0f);
}

TEST(VectorMath, Sigmoid) {
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  const Worst worst = worst_relative_error(sigmoid_fast, exact, -kInfinity, kInfinity);
  EXPECT_LT(worst.error, 4e-7) << "at " << worst.at;
  EXPECT_EQ(sigmoid_fast(-kInfinity), 0.0f);
  EXPECT_EQ(sigmoid_fast(kInfinity), 1.0f);
  EXPECT_EQ(sigmoid_fast(0.0f), 0.5f);
}

TEST(VectorMath, Tanh) {
  const Worst worst = worst_relative_error(
      tanh_fast, [](double x) { return std::tanh(x); }, -kInfinity, kInfinity);
  EXPECT_LT(worst.error, 4e-7) << "at " << worst.at;
  EXPECT_EQ(tanh_fast(-kInfinity), -1.0f);
  EXPECT_EQ(tanh_fast(kInfinity), 1.0f);
  EXPECT_EQ(tanh_fast(0.0f), 0.0f);
}

TEST(VectorMath, Erf) {
  const Worst worst = worst_relative_error(
      erf_fast, [](double x) { return std::erf(x); }, -kInfinity, kInfinity);
  EXPECT_LT(worst.error, 4e-7) << "at " << worst.at;
  EXPECT_EQ(erf_fast(-kInfinity), -1.0f);
  EXPECT_EQ(erf_fast(kInfinity), 1.0f);
  EXPECT_EQ(erf_fast(0.0f), 0.0f);
}

TEST(VectorMath, ErfcScaled) {
  const auto exact = [](double a) { return std::exp(a * a) * std::erfc(a); };
  const Worst worst = worst_relative_error(erfc_scaled_fast, exact, 0.0f, 9.4f);
  EXPECT_LT(worst.error, 5e-7) << "at " << worst.at;
}

TEST(VectorMath, NanStaysNan) {
  const float nans[] = {kNan, -kNan, std::bit_cast<float>(0x7fc0ffffu), std::bit_cast<float>(0x7f800001u)};
  for (const float nan : nans) {
    EXPECT_TRUE(std::isnan(exp_fast(nan)));
    EXPECT_TRUE(std::isnan(sigmoid_fast(nan)));
    EXPECT_TRUE(std::isnan(tanh_fast(nan)));
    EXPECT_TRUE(std::isnan(erf_fast(nan)));
    EXPECT_TRUE(std::isnan(expm1_negative_fast(nan)));
    EXPECT_TRUE(std::isnan(log_fast(nan)));
    EXPECT_TRUE(std::isnan(log1p_fast(nan)));
  }
}

}  // namespace
}  // namespace overtake::kernels
