#include "kernels/cuda/loss.h"

#include <limits>

#include "cuda/against_cpu.h"
#include "kernels/cpu/block.h"

namespace overtake {
namespace {

constexpr std::int32_t kIgnore = -100;

// Rows of a warp and of a block, of one chunk and of several, of whole packs and odd ones; some of them padded: with
// part of a pack, whole packs and whole chunks.
struct Case {
  std::int64_t rows, classes, padding = 0;

  std::int64_t width() const { return classes + padding; }
  std::int64_t elements() const { return rows * width(); }
};
const std::vector<Case> kCases = {
    {1, 1},       {32, 10},   {7, 3},       {130, 1000},    {33, 1001},     {5, 2048},     {9, 2056},    {4, 5000},
    {3, 50304},   {2, 50257}, {1025, 16},   {2, 9001},      {20011, 10},    {3, 8192},     {2, 16392},   {6, 256},
    {6, 257},     {3, 40000}, {6, 1, 7},    {33, 9, 7},     {7, 10, 1},     {9, 250, 6},   {5, 993, 31}, {3, 2049, 7},
    {3, 2041, 7}, {4, 8, 8},  {4, 100, 60}, {3, 100, 5000}, {3, 50257, 47}, {2, 50257, 46}};

// Logits with NaN where rows are padded.
template <class T>
std::vector<T> padded(Case c, std::vector<T> logits) {
  for (std::int64_t row = 0; row < c.rows; ++row) {
    for (std::int64_t column = c.classes; column < c.width(); ++column) {
      logits[size(row * c.width() + column)] = from_float<T>(std::numeric_limits<float>::quiet_NaN());
    }
  }
  return logits;
}

// Logits and labels, and what the CPU makes of them.
template <class T>
struct Problem {
  Problem(Case c, float smoothing, std::vector<T> values, std::vector<std::int32_t> classes_of_rows)
      : loss{c.classes, c.width(), smoothing, kIgnore},
        rows(c.rows),
        logits(std::move(values)),
        labels(std::move(classes_of_rows)),
        lse(size(rows)),
        metrics(3),
        grad(logits.size()) {
    std::vector<float> row_loss(size(rows)), row_correct(size(rows));
    first_bad = kernels::cross_entropy_forward(loss, logits.data(), labels.data(), row_loss.data(), lse.data(),
                                               row_correct.data(), 0, rows);
    kernels::cross_entropy_combine(loss, row_loss.data(), row_correct.data(), labels.data(), rows, metrics.data());
    kernels::cross_entropy_input_grad(loss, logits.data(), labels.data(), lse.data(), metrics.data() + 1, 0.7f,
                                      grad.data(), 0, rows);
  }

  void expect_same_on_gpu() const {
    DeviceArray<T> x(logits), dx(logits.size());
    DeviceArray<std::int32_t> gpu_labels(labels);
    std::vector<float> first_lse, first_metrics;
    DeviceArray<float> sums(size(rows)), stats(3);
    for (const bool again : {false, true}) {
      DeviceArray<std::int64_t> bad(1);
      DeviceArray<std::byte> scratch(cuda::cross_entropy_scratch_bytes(rows));
      cuda::cross_entropy_forward(nullptr, loss, x.data(), gpu_labels.data(), rows, sums.data(), stats.data(),
                                  bad.data(), scratch.data());
      if (again) {
        expect_same_bytes(sums.download(), first_lse, "lse");
        expect_same_bytes(stats.download(), first_metrics, "metrics");
      }
      first_lse = sums.download();
      first_metrics = stats.download();
      expect_close(first_lse, lse, 2e-6f, "lse");
      EXPECT_NEAR(first_metrics[0], metrics[0], 2e-6f * std::max(1.0f, std::fabs(metrics[0])));
      EXPECT_EQ(first_metrics[1], metrics[1]);
      EXPECT_EQ(first_metrics[2], metrics[2]);
      EXPECT_EQ(bad.download()[0], first_bad);
    }
    const auto run = [&](T* out) {
      cuda::cross_entropy_input_grad(nullptr, loss, x.data(), gpu_labels.data(), sums.data(), stats.data() + 1, 0.7f,
                                     rows, out);
    };
    run(dx.data());
    expect_gradient(dx.download());
    run(x.data());
    expect_same_bytes(x.download(), dx.download(), "gradient in place");
  }

  void expect_gradient(const std::vector<T>& got) const {
    if (loss.classes > 1) expect_close(got, grad, kBound<T>, "gradient");
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::int64_t column = static_cast<std::int64_t>(i) % loss.width;
      if (column >= loss.classes) {
        ASSERT_EQ(to_float(got[i]), 0.0f) << "padding of row " << i / size(loss.width);
      } else if (loss.classes == 1) {
        ASSERT_NEAR(to_float(got[i]), 0.0f, 1e-6f);  // 0 but for rounding
      }
    }
  }

  kernels::CrossEntropy loss;
  std::int64_t rows;
  std::vector<T> logits;             // [rows, width]
  std::vector<std::int32_t> labels;  // [rows]
  std::vector<float> lse, metrics;   // [rows], [3]
  std::vector<T> grad;               // [rows, width]
  std::int64_t first_bad = -1;
};

// Every fifth row is ignored.
std::vector<std::int32_t> random_labels(Case c) {
  std::mt19937 generator(3);
  std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(c.classes) - 1);
  std::vector<std::int32_t> labels(size(c.rows));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = i % 5 == 4 ? kIgnore : any(generator);
  return labels;
}

template <class T>
class CudaLoss : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaLoss, Types);

TYPED_TEST(CudaLoss, CrossEntropyIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    for (const float smoothing : {0.0f, 0.1f}) {
      SCOPED_TRACE(testing::Message() << c.rows << " rows of " << c.classes << " and " << c.padding << ", smoothing "
                                      << smoothing);
      const auto logits = padded(c, random_values<TypeParam>(c.elements(), 1, 0.5f, 3.0f));
      Problem<TypeParam>(c, smoothing, logits, random_labels(c)).expect_same_on_gpu();
    }
  }
}

// Few different numbers, so that the largest comes often, before and after the label; half the labels are right.
TYPED_TEST(CudaLoss, OfEqualLogitsTheFirstIsTheAnswer) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : {Case{500, 10}, Case{300, 64}, Case{200, 1000}, Case{64, 5000}, Case{20, 9001}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " rows of " << c.classes);
    std::mt19937 generator(7);
    std::uniform_int_distribution<int> any(0, static_cast<int>(c.classes));
    std::vector<TypeParam> logits(size(c.rows * c.classes));
    for (TypeParam& x : logits) x = from_float<TypeParam>(any(generator) < 4 ? 2.0f : -1.0f);
    std::vector<std::int32_t> labels = random_labels(c);
    for (std::size_t row = 0; row < labels.size(); row += 2) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row) * c.classes;
      const auto largest = std::max_element(begin, begin + c.classes,
                                            [](TypeParam a, TypeParam b) { return to_float(a) < to_float(b); });
      labels[row] = static_cast<std::int32_t>(largest - begin);
    }
    const Problem<TypeParam> problem(c, 0.0f, logits, labels);
    ASSERT_GT(problem.metrics[2], 0.0f);
    problem.expect_same_on_gpu();
  }
}

// Masked classes, among them whole chunks of a row.
TYPED_TEST(CudaLoss, ClassesAtMinusInfinityHaveNoPart) {
  OVERTAKE_NEEDS_GPU();
  const TypeParam lowest = from_float<TypeParam>(-std::numeric_limits<float>::infinity());
  for (const Case c : {Case{3, 10}, Case{3, 1000}, Case{2, 50000}}) {
    std::vector<TypeParam> logits = random_values<TypeParam>(c.rows * c.classes, 1);
    std::fill(logits.begin(), logits.begin() + c.classes * 9 / 10, lowest);
    for (std::int64_t i = c.classes; i < 2 * c.classes; i += 2) logits[size(i)] = lowest;
    std::vector<std::int32_t> labels(size(c.rows), static_cast<std::int32_t>(c.classes) - 1);
    Problem<TypeParam>(c, 0.0f, logits, labels).expect_same_on_gpu();
  }
}

TYPED_TEST(CudaLoss, LargeLogitsDoNotOverflow) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : {Case{9, 10}, Case{3, 3000}}) {
    const auto logits = random_values<TypeParam>(c.rows * c.classes, 1, 10000.0f, 30.0f);
    Problem<TypeParam>(c, 0.0f, logits, random_labels(c)).expect_same_on_gpu();
  }
}

TYPED_TEST(CudaLoss, BadLabelsAreFoundAndIgnored) {
  OVERTAKE_NEEDS_GPU();
  const Case c{5000, 12, 4};  // the first label that is none is that of a padded column
  const auto logits = padded(c, random_values<TypeParam>(c.elements(), 1));
  for (const std::int32_t bad : {12, -1, 1 << 30}) {
    for (const std::size_t place : {std::size_t{0}, std::size_t{1023}, std::size_t{4321}}) {
      std::vector<std::int32_t> labels = random_labels(c);
      labels[place] = labels[4999] = bad;
      const Problem<TypeParam> problem(c, 0.1f, logits, labels);
      ASSERT_EQ(problem.first_bad, static_cast<std::int64_t>(place));
      problem.expect_same_on_gpu();
    }
  }
}

TYPED_TEST(CudaLoss, NothingCountsIfAllIsIgnored) {
  OVERTAKE_NEEDS_GPU();
  const Case c{40, 100};
  const auto logits = random_values<TypeParam>(c.rows * c.classes, 1);
  Problem<TypeParam>(c, 0.0f, logits, std::vector<std::int32_t>(size(c.rows), kIgnore)).expect_same_on_gpu();
}

TYPED_TEST(CudaLoss, MeanSquaredErrorIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{10}, std::int64_t{4096}, std::int64_t{300001}}) {
    const std::int64_t blocks = kernels::blocks_of(count);
    const auto x = random_values<TypeParam>(count, 1);
    const auto target = random_values<float>(count, 2, 0.3f);
    std::vector<double> partials(size(blocks));
    std::vector<TypeParam> grad(x.size());
    float want = 0;
    kernels::mean_squared_error_forward(x.data(), target.data(), partials.data(), count, 0, blocks);
    kernels::mean_squared_error_combine(partials.data(), count, &want);
    kernels::mean_squared_error_input_grad(x.data(), target.data(), 0.7f, grad.data(), count, 0, blocks);

    DeviceArray<TypeParam> gpu_x(x), dx(x.size());
    DeviceArray<float> gpu_target(target), metrics(3), again(3);
    DeviceArray<std::byte> scratch(cuda::mean_squared_error_scratch_bytes(count));
    for (float* out : {metrics.data(), again.data()}) {
      cuda::mean_squared_error_forward(nullptr, gpu_x.data(), gpu_target.data(), count, 5, out, scratch.data());
    }
    const std::vector<float> got = metrics.download();
    EXPECT_NEAR(got[0], want, 2e-6f * want);
    EXPECT_EQ(got[1], 5.0f);
    EXPECT_EQ(got[2], 0.0f);
    expect_same_bytes(got, again.download(), "metrics");
    cuda::mean_squared_error_input_grad(nullptr, gpu_x.data(), gpu_target.data(), 0.7f, dx.data(), count);
    expect_close(dx.download(), grad, kBound<TypeParam>, "gradient");
    cuda::mean_squared_error_input_grad(nullptr, gpu_x.data(), gpu_target.data(), 0.7f, gpu_x.data(), count);
    expect_same_bytes(gpu_x.download(), dx.download(), "gradient in place");
  }
}

}  // namespace
}  // namespace overtake
