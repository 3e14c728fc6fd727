// Products through cuBLASLt against plain loops in double.

#include "kernels/cuda/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/bf16.h"
#include "cuda/device_array.h"

namespace overtake::cuda {
namespace {

constexpr std::size_t kWorkspace = 32u << 20;

struct Case {
  ProductShape shape;
  const char* name;
};

std::vector<float> random_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& x : values) x = uniform(random);
  return values;
}

// What is stored of a value in that type.
float stored(float x, ElementType type) { return type == ElementType::bf16 ? to_float(from_float<bf16>(x)) : x; }

// An array of either type on the device.
class Matrix {
 public:
  // Poisoned.
  Matrix(std::size_t count, ElementType type) : type_(type), f32_(is_f32() ? count : 1), bf16_(is_f32() ? 1 : count) {}
  Matrix(const std::vector<float>& values, ElementType type) : type_(type), f32_(values), bf16_(rounded(values)) {}
  void* data() { return is_f32() ? static_cast<void*>(f32_.data()) : static_cast<void*>(bf16_.data()); }
  std::vector<float> download() const {
    if (is_f32()) return f32_.download();
    std::vector<float> values;
    for (const bf16 x : bf16_.download()) values.push_back(to_float(x));
    return values;
  }

 private:
  bool is_f32() const { return type_ == ElementType::f32; }
  static std::vector<bf16> rounded(const std::vector<float>& values) {
    std::vector<bf16> all;
    for (const float x : values) all.push_back(from_float<bf16>(x));
    return all;
  }

  ElementType type_;
  DeviceArray<float> f32_;
  DeviceArray<bf16> bf16_;
};

double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double gelu_tanh_slope(double x) { return (gelu_tanh(x + 1e-5) - gelu_tanh(x - 1e-5)) / 2e-5; }

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (const double x : want) largest = std::max(largest, std::fabs(x));
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], tolerance * largest) << what << " " << i;
}

class Products : public testing::TestWithParam<Case> {};

TEST_P(Products, AreRightAndAlwaysTheSame) {
  OVERTAKE_NEEDS_GPU();
  const ProductShape s = GetParam().shape;
  const auto size = [&](std::int64_t r, std::int64_t c) { return static_cast<std::size_t>(s.batches * r * c); };
  const auto a = random_values(size(s.m, s.k), 1), b = random_values(size(s.k, s.n), 2);
  const auto vector = random_values(static_cast<std::size_t>(s.n), 3), saved = random_values(size(s.m, s.n), 4);
  constexpr float kScale = 0.5f;

  std::vector<double> c(size(s.m, s.n)), pre(c.size());
  for (std::int64_t g = 0; g < s.batches; ++g)
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < s.k; ++l) {
          const std::int64_t at = s.trans_a ? l * s.m + i : i * s.k + l, bt = s.trans_b ? j * s.k + l : l * s.n + j;
          sum += static_cast<double>(stored(a[static_cast<std::size_t>(g * s.m * s.k + at)], s.a)) *
                 static_cast<double>(stored(b[static_cast<std::size_t>(g * s.k * s.n + bt)], s.b));
        }
        const auto at = static_cast<std::size_t>((g * s.m + i) * s.n + j);
        const double bias = static_cast<double>(stored(vector[static_cast<std::size_t>(j)], s.vector));
        double y = kScale * sum;
        if (s.extra == ProductExtra::bias || s.extra == ProductExtra::bias_relu ||
            s.extra == ProductExtra::bias_gelu_tanh)
          y += bias;
        pre[at] = y;
        if (s.extra == ProductExtra::bias_relu) y = std::max(y, 0.0);
        if (s.extra == ProductExtra::bias_gelu_tanh) y = gelu_tanh(y);
        if (s.extra == ProductExtra::gelu_tanh_grad) y *= gelu_tanh_slope(static_cast<double>(stored(saved[at], s.c)));
        c[at] = y;
      }
  const bool writes_saved = s.extra == ProductExtra::bias_gelu_tanh;
  Tuning tuning({}, {}, nullptr);
  const Product measured(s, tuning, kWorkspace);
  const Product kept(s, tuning, kWorkspace);
  EXPECT_GT(measured.microseconds(), 0);
  EXPECT_EQ(kept.microseconds(), 0);
  EXPECT_EQ(kept.workspace_bytes(), measured.workspace_bytes());
  DeviceArray<std::uint8_t> workspace(std::max<std::size_t>(measured.workspace_bytes(), 1));
  Matrix da(a, s.a), db(b, s.b);
  std::vector<float> first;
  for (int run = 0; run < 2; ++run) {
    Matrix dc(c.size(), s.c), dv(vector, s.vector), ds = writes_saved ? Matrix(c.size(), s.c) : Matrix(saved, s.c);
    const Product& product = run == 0 ? measured : kept;
    product.run(nullptr, {da.data(), db.data(), dc.data(), dv.data(), ds.data()}, kScale, workspace.data());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<float> got = dc.download();
    const bool has_bf16 = s.a == ElementType::bf16 || s.c == ElementType::bf16;
    const double tolerance = s.c == ElementType::bf16 ? 1e-2 : s.tf32 ? 3e-3 : has_bf16 ? 1e-4 : 1e-5;
    expect_near(got, c, tolerance, "c");
    if (writes_saved) expect_near(ds.download(), pre, tolerance, "saved");
    if (run == 0) first = got;
    EXPECT_EQ(got, first);
  }
}

// All three matrices are columns of wider ones, in batches that lie apart; c is added to.
class ProductSlices : public testing::TestWithParam<ProductShape> {};

TEST_P(ProductSlices, AreAddedInPlace) {
  OVERTAKE_NEEDS_GPU();
  const ProductShape s = GetParam();
  constexpr std::int64_t kOffset = 8;  // of the first column
  const auto length = [&](std::int64_t stride) { return static_cast<std::size_t>(s.batches * stride); };
  const auto a = random_values(length(s.stride_a), 1), b = random_values(length(s.stride_b), 2),
             c = random_values(length(s.stride_c), 3);
  std::vector<double> want;
  for (const float x : c) want.push_back(static_cast<double>(stored(x, s.c)));
  for (std::int64_t g = 0; g < s.batches; ++g)
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j)
        for (std::int64_t l = 0; l < s.k; ++l) {
          const std::int64_t at = s.trans_a ? l * s.lda + i : i * s.lda + l;
          const std::int64_t bt = s.trans_b ? j * s.ldb + l : l * s.ldb + j;
          want[static_cast<std::size_t>(g * s.stride_c + i * s.ldc + j + kOffset)] +=
              static_cast<double>(stored(a[static_cast<std::size_t>(g * s.stride_a + at + kOffset)], s.a)) *
              static_cast<double>(stored(b[static_cast<std::size_t>(g * s.stride_b + bt + kOffset)], s.b));
        }
  Tuning tuning({}, {}, nullptr);
  const Product product(s, tuning, kWorkspace);
  DeviceArray<std::uint8_t> workspace(std::max<std::size_t>(product.workspace_bytes(), 1));
  Matrix da(a, s.a), db(b, s.b), dc(c, s.c);
  const auto column = [](Matrix& matrix, ElementType type) {
    return static_cast<std::uint8_t*>(matrix.data()) + static_cast<std::size_t>(kOffset) * bytes_of(type);
  };
  std::uint8_t* const added = column(dc, s.c);
  product.run(nullptr, {.a = column(da, s.a), .b = column(db, s.b), .c = added, .add = added}, 1, workspace.data());
  expect_near(dc.download(), want, s.c == ElementType::bf16 ? 1e-2 : s.a == ElementType::bf16 ? 1e-4 : 1e-5, "c");
}

// So that weights do not depend on whether a sum is a task of its own.
TEST(ProductSums, HaveTheBitsOfASumOfItsOwn) {
  OVERTAKE_NEEDS_GPU();
  for (const auto& [m, n, k] :
       {std::array{768l, 3072l, 512l}, {1024l, 1024l, 1024l}, {64l, 72l, 8192l}, {33l, 7l, 65l}})
    for (const ElementType type : {ElementType::bf16, ElementType::f32}) {
      const ProductShape s{.m = m, .n = n, .k = k, .trans_a = true, .a = type, .b = type};
      const auto size = [](std::int64_t rows, std::int64_t columns) {
        return static_cast<std::size_t>(rows * columns);
      };
      const auto c = random_values(size(m, n), 3);
      Tuning tuning({}, {}, nullptr);
      const Product product(s, tuning, kWorkspace);
      DeviceArray<std::uint8_t> workspace(std::max<std::size_t>(product.workspace_bytes(), 1));
      Matrix da(random_values(size(m, k), 1), type), db(random_values(size(k, n), 2), type), dc(c, s.c),
          apart(c.size(), s.c), other(c.size(), s.c);
      product.run(nullptr, {.a = da.data(), .b = db.data(), .c = apart.data()}, 1, workspace.data());
      product.run(nullptr, {.a = da.data(), .b = db.data(), .c = other.data(), .add = dc.data()}, 1, workspace.data());
      product.run(nullptr, {.a = da.data(), .b = db.data(), .c = dc.data(), .add = dc.data()}, 1, workspace.data());
      std::vector<float> want = apart.download();
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += c[i];
      EXPECT_EQ(dc.download(), want) << m << " x " << n << " x " << k;
      EXPECT_EQ(other.download(), want) << m << " x " << n << " x " << k << ", elsewhere";
    }
}

TEST(ProductChoice, IsTheHeuristicsWhereNothingIsMeasured) {
  OVERTAKE_NEEDS_GPU();
  Tuning tuning({}, {.measure = false}, nullptr);
  const ProductShape shape{.m = 64, .n = 64, .k = 64};
  EXPECT_EQ(Product(shape, tuning, kWorkspace).microseconds(), 0);
}

constexpr ElementType kF = ElementType::f32, kB = ElementType::bf16;
using Extra = ProductExtra;

INSTANTIATE_TEST_SUITE_P(
    Shapes, Products,
    testing::Values(
        Case{{.m = 64, .n = 48, .k = 80}, "plain"}, Case{{.m = 33, .n = 7, .k = 65}, "odd"},
        Case{{.m = 40, .n = 24, .k = 56, .trans_b = true}, "trans_b"},
        Case{{.m = 40, .n = 24, .k = 56, .trans_a = true}, "trans_a"},
        Case{{.m = 16, .n = 24, .k = 8, .batches = 5, .trans_a = true, .trans_b = true}, "batches"},
        Case{{.m = 13, .n = 7, .k = 5, .batches = 3}, "odd_batches"},
        Case{{.m = 37, .n = 19, .k = 21, .batches = 3, .trans_b = true, .a = kB, .b = kB, .c = kB}, "odd_bf16"},
        Case{{.m = 128, .n = 64, .k = 4096, .trans_a = true, .a = kB, .b = kB}, "weight_grad"},
        Case{{.m = 256, .n = 128, .k = 64, .trans_b = true, .a = kB, .b = kB, .c = kB}, "bf16"},
        Case{
            {.m = 64, .n = 96, .k = 32, .trans_b = true, .a = kB, .b = kB, .c = kB, .vector = kB, .extra = Extra::bias},
            "bias"},
        Case{{.m = 64, .n = 96, .k = 32, .trans_b = true, .extra = Extra::bias_relu}, "bias_relu"},
        Case{{.m = 64,
              .n = 96,
              .k = 32,
              .trans_b = true,
              .a = kB,
              .b = kB,
              .c = kB,
              .vector = kB,
              .extra = Extra::bias_gelu_tanh},
             "bias_gelu"},
        Case{{.m = 64, .n = 96, .k = 32, .a = kB, .b = kB, .c = kB, .extra = Extra::gelu_tanh_grad}, "gelu_grad"},
        Case{{.m = 64, .n = 64, .k = 64, .tf32 = true}, "tf32"}),
    [](const auto& c) { return std::string(c.param.name); });

// clang-format off
INSTANTIATE_TEST_SUITE_P(
    Shapes, ProductSlices,
    testing::Values(
        ProductShape{.m = 24, .n = 16, .k = 40, .lda = 64, .ldb = 48, .ldc = 32,
                     .stride_a = 24 * 64, .stride_b = 40 * 48, .stride_c = 24 * 32},
        ProductShape{.m = 24, .n = 16, .k = 40, .batches = 3, .trans_a = true, .lda = 48, .ldb = 32, .ldc = 32,
                     .stride_a = 2048, .stride_b = 1408, .stride_c = 1024},
        ProductShape{.m = 24, .n = 16, .k = 40, .batches = 2, .trans_b = true, .lda = 64, .ldb = 64, .ldc = 32,
                     .stride_a = 1600, .stride_b = 1088, .stride_c = 800, .a = kB, .b = kB, .c = kB},
        ProductShape{.m = 64, .n = 128, .k = 256, .trans_a = true, .lda = 192, .ldb = 384, .ldc = 136,
                     .stride_a = 192 * 256, .stride_b = 384 * 256, .stride_c = 136 * 64, .a = kB, .b = kB}));
// clang-format on

}  // namespace
}  // namespace overtake::cuda
