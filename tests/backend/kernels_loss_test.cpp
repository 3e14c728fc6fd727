#include "kernels/cpu/loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/block.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

constexpr std::int32_t kIgnore = -100;

struct Shape {
  std::int64_t rows, classes, padding = 0;

  std::int64_t width() const { return classes + padding; }
};

const std::vector<Shape> kShapes = {{1, 1},     {1, 3},     {7, 10},      {33, 17},  {64, 1000},
                                    {3, 50257}, {7, 10, 1}, {33, 17, 15}, {3, 1, 7}, {4, 1000, 24}};

// Random logits with NaN where rows are padded.
template <class T>
std::vector<T> random_logits(const Shape& s, std::uint32_t seed, float limit) {
  std::vector<T> logits = random_tensor<T>(s.rows * s.width(), seed, -limit, limit);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const auto end = logits.begin() + (row + 1) * s.width();
    std::fill(end - s.padding, end, from_float<T>(std::numeric_limits<float>::quiet_NaN()));
  }
  return logits;
}

// Random labels, every fifth row ignored.
std::vector<std::int32_t> random_labels(const Shape& s) {
  std::mt19937 generator(11);
  std::uniform_int_distribution<std::int32_t> uniform(0, static_cast<std::int32_t>(s.classes) - 1);
  std::vector<std::int32_t> labels(index(s.rows));
  for (std::int64_t row = 0; row < s.rows; ++row) labels[index(row)] = row % 5 == 4 ? kIgnore : uniform(generator);
  return labels;
}

// -sum over classes of target * log softmax, 0 for an ignored row.
double reference_row(const double* x, std::int64_t classes, std::int32_t label, double smoothing) {
  if (label == kIgnore) return 0;
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(x[c]);
  double loss = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    const double target = (c == label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
    loss -= target * (x[c] - std::log(sum));
  }
  return loss;
}

template <class T>
void check_cross_entropy_forward() {
  for (const Shape& s : kShapes) {
    for (const float smoothing : {0.0f, 0.1f}) {
      const CrossEntropy loss{s.classes, s.width(), smoothing, kIgnore};
      const auto logits = random_logits<T>(s, 12, 5.0f);
      const auto labels = random_labels(s);
      // loss, lse and correct side by side
      const auto rows = run_whole_and_split<float>(3 * s.rows, s.rows, [&](float* out, std::int64_t b, std::int64_t e) {
        EXPECT_EQ(cross_entropy_forward(loss, logits.data(), labels.data(), out, out + s.rows, out + 2 * s.rows, b, e),
                  -1);
      });
      const std::vector<double> x = to_doubles(logits);
      double mean = 0, counted = 0, correct = 0;
      for (std::int64_t row = 0; row < s.rows; ++row) {
        const double* from = x.data() + row * s.width();
        const std::int32_t label = labels[index(row)];
        const double want = reference_row(from, s.classes, label, static_cast<double>(smoothing));
        EXPECT_NEAR(static_cast<double>(rows[index(row)]), want, 2e-6 * (1 + want));
        double sum = 0;
        for (std::int64_t c = 0; c < s.classes; ++c) sum += std::exp(from[c]);
        EXPECT_NEAR(static_cast<double>(rows[index(s.rows + row)]), std::log(sum),
                    1e-6 * (1 + std::fabs(std::log(sum))));
        const bool is_best = label != kIgnore && std::max_element(from, from + s.classes) - from == label;
        EXPECT_EQ(rows[index(2 * s.rows + row)], is_best ? 1.0f : 0.0f);
        mean += want;
        counted += label != kIgnore ? 1 : 0;
        correct += is_best ? 1 : 0;
      }
      float stats[3];
      cross_entropy_combine(loss, rows.data(), rows.data() + 2 * s.rows, labels.data(), s.rows, stats);
      EXPECT_NEAR(static_cast<double>(stats[0]), mean / counted, 2e-6 * (1 + mean / counted));
      EXPECT_EQ(static_cast<double>(stats[1]), counted);
      EXPECT_EQ(static_cast<double>(stats[2]), correct);
    }
  }
}

TEST(LossKernel, CrossEntropyFloat) { check_cross_entropy_forward<float>(); }
TEST(LossKernel, CrossEntropyBf16) { check_cross_entropy_forward<bf16>(); }

template <class T>
void check_cross_entropy_grad() {
  for (const Shape& s :
       {Shape{1, 3}, Shape{7, 10}, Shape{33, 17}, Shape{2, 1000}, Shape{7, 10, 1}, Shape{33, 17, 15}}) {
    for (const float smoothing : {0.0f, 0.1f}) {
      const CrossEntropy loss{s.classes, s.width(), smoothing, kIgnore};
      const std::int64_t elements = s.rows * s.width();
      const auto logits = random_logits<T>(s, 13, 4.0f);
      const auto labels = random_labels(s);
      std::vector<float> row_loss(index(s.rows)), lse(index(s.rows)), correct(index(s.rows));
      float stats[3];
      cross_entropy_forward(loss, logits.data(), labels.data(), row_loss.data(), lse.data(), correct.data(), 0, s.rows);
      cross_entropy_combine(loss, row_loss.data(), correct.data(), labels.data(), s.rows, stats);
      const float scale = 3.0f;
      const auto dlogits = run_whole_and_split<T>(elements, s.rows, [&](T* out, std::int64_t begin, std::int64_t end) {
        cross_entropy_input_grad(loss, logits.data(), labels.data(), lse.data(), stats + 1, scale, out, begin, end);
      });
      const auto in_place = run_whole_and_split<T>(
          elements, s.rows,
          [&](T* out, std::int64_t begin, std::int64_t end) {
            cross_entropy_input_grad(loss, out, labels.data(), lse.data(), stats + 1, scale, out, begin, end);
          },
          &logits);
      EXPECT_EQ(to_doubles(dlogits), to_doubles(in_place));

      std::vector<double> x = to_doubles(logits), want(index(elements));
      const double h = 1e-5, counted = static_cast<double>(stats[1]);
      for (std::int64_t row = 0; row < s.rows; ++row) {
        double* from = x.data() + row * s.width();
        for (std::int64_t c = 0; c < s.classes; ++c) {
          const double value = from[c];
          from[c] = value + h;
          const double up = reference_row(from, s.classes, labels[index(row)], static_cast<double>(smoothing));
          from[c] = value - h;
          const double down = reference_row(from, s.classes, labels[index(row)], static_cast<double>(smoothing));
          from[c] = value;
          want[index(row * s.width() + c)] = (up - down) / (2 * h) / counted * static_cast<double>(scale);
        }
      }
      expect_close(dlogits, want, 1e-6, static_cast<double>(scale) / counted);
      for (std::int64_t i = 0; i < elements; ++i) {
        if (i % s.width() < s.classes) continue;
        ASSERT_EQ(to_float(dlogits[index(i)]), 0.0f) << "padding, element " << i;
      }
    }
  }
}

TEST(LossKernel, CrossEntropyGradFloat) { check_cross_entropy_grad<float>(); }
TEST(LossKernel, CrossEntropyGradBf16) { check_cross_entropy_grad<bf16>(); }

TEST(LossKernel, CrossEntropyBadLabelsTiesAndNothingCounted) {
  const CrossEntropy loss{3, 3, 0.0f, kIgnore};
  const std::vector<float> logits = {1, 1, 0, 1, 1, 0, 5, 5, 5};  // [3, 3]
  const std::vector<std::int32_t> labels = {0, 1, 3};
  std::vector<float> row_loss(3), lse(3), correct(3);
  float stats[3];
  EXPECT_EQ(
      cross_entropy_forward(loss, logits.data(), labels.data(), row_loss.data(), lse.data(), correct.data(), 0, 3), 2);
  EXPECT_EQ(
      cross_entropy_forward(loss, logits.data(), labels.data(), row_loss.data(), lse.data(), correct.data(), 0, 2), -1);
  EXPECT_EQ(correct, (std::vector<float>{1, 0, 0}));  // the first of equals is the answer
  cross_entropy_combine(loss, row_loss.data(), correct.data(), labels.data(), 3, stats);
  EXPECT_EQ(stats[1], 2.0f);

  const std::vector<std::int32_t> ignored(3, kIgnore);
  EXPECT_EQ(
      cross_entropy_forward(loss, logits.data(), ignored.data(), row_loss.data(), lse.data(), correct.data(), 0, 3),
      -1);
  cross_entropy_combine(loss, row_loss.data(), correct.data(), ignored.data(), 3, stats);
  EXPECT_EQ(stats[0], 0.0f);
  EXPECT_EQ(stats[1], 0.0f);
  std::vector<float> dlogits(9, 1.0f);
  cross_entropy_input_grad(loss, logits.data(), ignored.data(), lse.data(), stats + 1, 1.0f, dlogits.data(), 0, 3);
  EXPECT_EQ(dlogits, std::vector<float>(9, 0.0f));
}

template <class T>
void check_mean_squared_error() {
  for (const std::int64_t count : {1, 7, 1024, 1025, 50021}) {
    const auto x = random_tensor<T>(count, 14);
    const auto target = random_tensor<float>(count, 15);
    const auto partials = run_whole_and_split<double>(
        blocks_of(count), blocks_of(count), [&](double* out, std::int64_t b, std::int64_t e) {
          mean_squared_error_forward(x.data(), target.data(), out, count, b, e);
        });
    float loss = 0;
    mean_squared_error_combine(partials.data(), count, &loss);
    const auto dx = run_whole_and_split<T>(count, blocks_of(count), [&](T* out, std::int64_t begin, std::int64_t end) {
      mean_squared_error_input_grad(x.data(), target.data(), 0.5f, out, count, begin, end);
    });
    const auto in_place = run_whole_and_split<T>(
        count, blocks_of(count),
        [&](T* out, std::int64_t begin, std::int64_t end) {
          mean_squared_error_input_grad(out, target.data(), 0.5f, out, count, begin, end);
        },
        &x);
    EXPECT_EQ(to_doubles(dx), to_doubles(in_place));
    double want = 0;
    const double h = 1e-5, n = static_cast<double>(count);
    std::vector<double> slopes;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto square = [&](double move) {
        return std::pow(static_cast<double>(to_float(x[i])) + move - static_cast<double>(target[i]), 2) / n;
      };
      want += square(0);
      slopes.push_back(0.5 * (square(h) - square(-h)) / (2 * h));
    }
    EXPECT_NEAR(static_cast<double>(loss), want, 1e-6 * want);
    expect_close(dx, slopes, 1e-6, 1e-4 / n);
  }
}

TEST(LossKernel, MeanSquaredErrorFloat) { check_mean_squared_error<float>(); }
TEST(LossKernel, MeanSquaredErrorBf16) { check_mean_squared_error<bf16>(); }

}  // namespace
}  // namespace overtake::kernels
