#include "kernels/cpu/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tensor_check.h"

namespace overtake::kernels {
namespace {

struct Shape {
  std::int64_t outer, axis, inner;
};

const std::vector<Shape> kShapes = {{1, 1, 1}, {3, 7, 1},   {20, 17, 1},  {5, 1000, 1}, {2, 50257, 1},
                                    {2, 3, 5}, {3, 10, 64}, {4, 17, 130}, {1, 33, 1025}};

std::size_t at(const Shape& s, std::int64_t o, std::int64_t a, std::int64_t i) {
  return index((o * s.axis + a) * s.inner + i);
}

// Softmax of x along the axis, in double.
std::vector<double> reference(const Shape& s, const std::vector<double>& x) {
  std::vector<double> y(x.size());
  for (std::int64_t o = 0; o < s.outer; ++o) {
    for (std::int64_t i = 0; i < s.inner; ++i) {
      double sum = 0;
      for (std::int64_t a = 0; a < s.axis; ++a) sum += std::exp(x[at(s, o, a, i)]);
      for (std::int64_t a = 0; a < s.axis; ++a) y[at(s, o, a, i)] = std::exp(x[at(s, o, a, i)]) / sum;
    }
  }
  return y;
}

template <class T>
void check_forward() {
  for (const Shape& s : kShapes) {
    const std::int64_t count = s.outer * s.axis * s.inner, units = softmax_units(s.outer, s.inner);
    const auto x = random_tensor<T>(count, 5, -6.0f, 6.0f);
    const auto y = run_whole_and_split<T>(count, units, [&](T* out, std::int64_t begin, std::int64_t end) {
      softmax_forward(x.data(), out, s.axis, s.inner, begin, end);
    });
    expect_close(y, reference(s, to_doubles(x)), 2e-6);
    const auto in_place = run_whole_and_split<T>(
        count, units,
        [&](T* out, std::int64_t begin, std::int64_t end) { softmax_forward(out, out, s.axis, s.inner, begin, end); },
        &x);
    EXPECT_EQ(to_doubles(y), to_doubles(in_place));
  }
}

TEST(SoftmaxKernel, ForwardFloat) { check_forward<float>(); }
TEST(SoftmaxKernel, ForwardBf16) { check_forward<bf16>(); }

// dx against central differences of sum(softmax(x) dy) in double. The kernel gets y rounded to T, which the bound
// allows.
template <class T>
void check_backward() {
  for (const Shape& s : {Shape{3, 7, 1}, Shape{2, 17, 1}, Shape{2, 3, 5}, Shape{1, 6, 70}}) {
    const std::int64_t count = s.outer * s.axis * s.inner, units = softmax_units(s.outer, s.inner);
    const auto x = random_tensor<float>(count, 6);
    const auto dy = random_tensor<T>(count, 7);
    const std::vector<double> exact = to_doubles(x), grads = to_doubles(dy), values = reference(s, exact);
    std::vector<T> y;
    for (const double v : values) y.push_back(from_float<T>(static_cast<float>(v)));
    const auto dx = run_whole_and_split<T>(count, units, [&](T* out, std::int64_t begin, std::int64_t end) {
      softmax_backward(y.data(), dy.data(), out, s.axis, s.inner, begin, end);
    });
    const double h = 1e-5;
    std::vector<double> want;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      std::vector<double> moved = exact;
      moved[i] = exact[i] + h;
      const std::vector<double> up = reference(s, moved);
      moved[i] = exact[i] - h;
      const std::vector<double> down = reference(s, moved);
      double slope = 0;
      for (std::size_t j = 0; j < up.size(); ++j) slope += (up[j] - down[j]) / (2 * h) * grads[j];
      want.push_back(slope);
    }
    expect_close(dx, want, 8 * kRounding<T> + 1e-7, 1.0);
    const auto in_place = run_whole_and_split<T>(
        count, units,
        [&](T* out, std::int64_t begin, std::int64_t end) {
          softmax_backward(y.data(), out, out, s.axis, s.inner, begin, end);
        },
        &dy);
    EXPECT_EQ(to_doubles(dx), to_doubles(in_place));
  }
}

TEST(SoftmaxKernel, BackwardFloat) { check_backward<float>(); }
TEST(SoftmaxKernel, BackwardBf16) { check_backward<bf16>(); }

// Wide shapes against the formula in double, with the same y.
TEST(SoftmaxKernel, BackwardWide) {
  for (const Shape& s : kShapes) {
    const std::int64_t count = s.outer * s.axis * s.inner, units = softmax_units(s.outer, s.inner);
    const auto x = random_tensor<float>(count, 8), dy = random_tensor<float>(count, 9);
    std::vector<float> y(x.size());
    softmax_forward(x.data(), y.data(), s.axis, s.inner, 0, units);
    const auto dx = run_whole_and_split<float>(count, units, [&](float* out, std::int64_t begin, std::int64_t end) {
      softmax_backward(y.data(), dy.data(), out, s.axis, s.inner, begin, end);
    });
    const std::vector<double> values = to_doubles(y), grads = to_doubles(dy);
    std::vector<double> want(values.size());
    for (std::int64_t o = 0; o < s.outer; ++o) {
      for (std::int64_t i = 0; i < s.inner; ++i) {
        double dot = 0;
        for (std::int64_t a = 0; a < s.axis; ++a) dot += values[at(s, o, a, i)] * grads[at(s, o, a, i)];
        for (std::int64_t a = 0; a < s.axis; ++a) {
          want[at(s, o, a, i)] = values[at(s, o, a, i)] * (grads[at(s, o, a, i)] - dot);
        }
      }
    }
    expect_close(dx, want, 1e-6, 1.0 / static_cast<double>(s.axis));
  }
}

TEST(SoftmaxKernel, MasksAndLargeLogits) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {-infinity, 1000.0f, -infinity, 1000.0f, -1e30f};
  std::vector<float> y(x.size());
  softmax_forward(x.data(), y.data(), 5, 1, 0, 1);
  EXPECT_EQ(y, (std::vector<float>{0.0f, 0.5f, 0.0f, 0.5f, 0.0f}));
  const std::vector<float> masked(3, -infinity);
  softmax_forward(masked.data(), y.data(), 3, 1, 0, 1);
  EXPECT_TRUE(std::isnan(y[0]));
}

}  // namespace
}  // namespace overtake::kernels
