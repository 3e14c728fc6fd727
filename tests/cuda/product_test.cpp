// Products through cuBLASLt against plain loops in double.

#include "kernels/cuda/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

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
float stored(float x, ProductType type) { return type == ProductType::bf16 ? to_float(from_float<bf16>(x)) : x; }

// An array of either type on the device.
class Matrix {
 public:
  // Poisoned.
  Matrix(std::size_t count, ProductType type) : type_(type), f32_(is_f32() ? count : 1), bf16_(is_f32() ? 1 : count) {}
  Matrix(const std::vector<float>& values, ProductType type) : type_(type), f32_(values), bf16_(rounded(values)) {}
  void* data() { return is_f32() ? static_cast<void*>(f32_.data()) : static_cast<void*>(bf16_.data()); }
  std::vector<float> download() const {
    if (is_f32()) return f32_.download();
    std::vector<float> values;
    for (const bf16 x : bf16_.download()) values.push_back(to_float(x));
    return values;
  }

 private:
  bool is_f32() const { return type_ == ProductType::f32; }
  static std::vector<bf16> rounded(const std::vector<float>& values) {
    std::vector<bf16> all;
    for (const float x : values) all.push_back(from_float<bf16>(x));
    return all;
  }

  ProductType type_;
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

  std::vector<double> c(size(s.m, s.n)), pre(c.size()), sums(static_cast<std::size_t>(s.m));
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
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t l = 0; l < s.k; ++l)
      sums[static_cast<std::size_t>(i)] +=
          static_cast<double>(stored(a[static_cast<std::size_t>(s.trans_a ? l * s.m + i : i * s.k + l)], s.a));

  const bool is_sum = s.extra == ProductExtra::sum_of_a, writes_saved = s.extra == ProductExtra::bias_gelu_tanh;
  const Product product(s, kWorkspace);
  DeviceArray<std::uint8_t> workspace(std::max<std::size_t>(product.workspace_bytes(), 1));
  Matrix da(a, s.a), db(b, s.b);
  std::vector<float> first;
  for (int run = 0; run < 2; ++run) {
    Matrix dc(c.size(), s.c), dv = is_sum ? Matrix(sums.size(), s.vector) : Matrix(vector, s.vector),
                              ds = writes_saved ? Matrix(c.size(), s.c) : Matrix(saved, s.c);
    product.run(nullptr, {da.data(), db.data(), dc.data(), dv.data(), ds.data()}, kScale, workspace.data());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<float> got = dc.download();
    const bool has_bf16 = s.a == ProductType::bf16 || s.c == ProductType::bf16;
    const double tolerance = s.c == ProductType::bf16 ? 1e-2 : s.tf32 ? 3e-3 : has_bf16 ? 1e-4 : 1e-5;
    expect_near(got, c, tolerance, "c");
    if (is_sum) expect_near(dv.download(), sums, 1e-2, "sum of a");
    if (writes_saved) expect_near(ds.download(), pre, tolerance, "saved");
    if (run == 0) first = got;
    EXPECT_EQ(got, first);
  }
}

constexpr ProductType kF = ProductType::f32, kB = ProductType::bf16;
using Extra = ProductExtra;

INSTANTIATE_TEST_SUITE_P(
    Shapes, Products,
    testing::Values(
        Case{{.m = 64, .n = 48, .k = 80}, "plain"}, Case{{.m = 33, .n = 7, .k = 65}, "odd"},
        Case{{.m = 40, .n = 24, .k = 56, .trans_b = true}, "trans_b"},
        Case{{.m = 40, .n = 24, .k = 56, .trans_a = true}, "trans_a"},
        Case{{.m = 16, .n = 24, .k = 8, .batches = 5, .trans_a = true, .trans_b = true}, "batches"},
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
        Case{{.m = 64, .n = 96, .k = 512, .trans_a = true, .a = kB, .b = kB, .vector = kF, .extra = Extra::sum_of_a},
             "bias_grad"},
        Case{{.m = 64, .n = 64, .k = 64, .tf32 = true}, "tf32"}),
    [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace overtake::cuda
