#include "kernels/cuda/layer_norm.h"

#include "cuda/against_cpu.h"
#include "kernels/cpu/layer_norm.h"

namespace overtake {
namespace {

constexpr float kEpsilon = 1e-5f;

// Rows held by warps and by blocks, in 2, 4 and 8 packs, and rows too long for that; widths of whole packs and odd
// ones.
struct Case {
  std::int64_t rows, width;
};
const std::vector<Case> kCases = {{1, 8},    {7, 3},    {130, 64}, {33, 100},  {257, 768},  {5, 200},   {64, 1024},
                                  {9, 2048}, {3, 4096}, {2, 8192}, {3, 9000},  {2, 40000},  {1000, 1},  {5, 501},
                                  {3, 1001}, {4, 2047}, {2, 5001}, {4099, 96}, {70001, 16}, {6001, 13}, {512, 1600}};

template <class T>
struct Inputs {
  explicit Inputs(Case c)
      : rows(c.rows),
        width(c.width),
        x(random_values<T>(rows * width, 1, 0.5f, 2.0f)),
        dy(random_values<T>(rows * width, 2, 0.1f)),
        add(random_values<T>(rows * width, 3)),
        gamma(random_values<float>(width, 4, 1.0f, 0.3f)),
        beta(random_values<float>(width, 5)),
        mean(size(rows)),
        rstd(size(rows)),
        y(x.size()) {
    kernels::layer_norm_forward<T>(x.data(), nullptr, gamma.data(), beta.data(), width, kEpsilon, y.data(), nullptr,
                                   mean.data(), rstd.data(), 0, rows);
  }

  std::int64_t rows, width;
  std::vector<T> x, dy, add;                   // [rows][width]
  std::vector<float> gamma, beta, mean, rstd;  // [width], [width], [rows], [rows]
  std::vector<T> y;                            // what the CPU gives
};

template <class T>
class CudaLayerNorm : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaLayerNorm, Types);

TYPED_TEST(CudaLayerNorm, ForwardIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", width " << c.width);
    Inputs<TypeParam> in(c);
    DeviceArray<TypeParam> x(in.x), in_place(in.x);
    DeviceArray<float> gamma(in.gamma), beta(in.beta);
    std::vector<TypeParam> first;
    for (const bool again : {false, true}) {
      DeviceArray<TypeParam> y(in.x.size());
      DeviceArray<float> mean(size(c.rows)), rstd(size(c.rows));
      cuda::layer_norm_forward<TypeParam>(nullptr, x.data(), nullptr, gamma.data(), beta.data(), c.rows, c.width,
                                          kEpsilon, y.data(), nullptr, mean.data(), rstd.data());
      expect_close(y.download(), in.y, kBound<TypeParam>, "y");
      expect_close(mean.download(), in.mean, 1e-5f, "mean");
      expect_close(rstd.download(), in.rstd, 1e-5f, "rstd");
      if (again) expect_same_bytes(y.download(), first, "y");
      first = y.download();
    }
    DeviceArray<float> mean(size(c.rows)), rstd(size(c.rows));
    cuda::layer_norm_forward<TypeParam>(nullptr, in_place.data(), nullptr, gamma.data(), beta.data(), c.rows, c.width,
                                        kEpsilon, in_place.data(), nullptr, mean.data(), rstd.data());
    expect_same_bytes(in_place.download(), first, "y in place");
  }
}

TYPED_TEST(CudaLayerNorm, NoBetaMeansNoShift) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : {Case{33, 768}, Case{33, 77}}) {
    Inputs<TypeParam> in(c);
    kernels::layer_norm_forward<TypeParam>(in.x.data(), nullptr, in.gamma.data(), nullptr, c.width, kEpsilon,
                                           in.y.data(), nullptr, in.mean.data(), in.rstd.data(), 0, c.rows);
    DeviceArray<TypeParam> x(in.x), y(in.x.size());
    DeviceArray<float> gamma(in.gamma), mean(size(c.rows)), rstd(size(c.rows));
    cuda::layer_norm_forward<TypeParam>(nullptr, x.data(), nullptr, gamma.data(), nullptr, c.rows, c.width, kEpsilon,
                                        y.data(), nullptr, mean.data(), rstd.data());
    expect_close(y.download(), in.y, kBound<TypeParam>, "y");
  }
}

// In.add is the residual. The sum is the CPU's to the last bit; y is compared with what the kernel makes of the sum
// alone, which must be the same bytes. The sum may lie over either of its terms, and y over x.
TYPED_TEST(CudaLayerNorm, OfASumIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", width " << c.width);
    Inputs<TypeParam> in(c);
    std::vector<TypeParam> want_sum(in.x.size());
    kernels::layer_norm_forward(in.x.data(), in.add.data(), in.gamma.data(), in.beta.data(), c.width, kEpsilon,
                                in.y.data(), want_sum.data(), in.mean.data(), in.rstd.data(), 0, c.rows);
    DeviceArray<float> gamma(in.gamma), beta(in.beta), mean(size(c.rows)), rstd(size(c.rows));
    const auto run = [&](const TypeParam* x, const TypeParam* residual, TypeParam* y, TypeParam* sum) {
      cuda::layer_norm_forward(nullptr, x, residual, gamma.data(), beta.data(), c.rows, c.width, kEpsilon, y, sum,
                               mean.data(), rstd.data());
    };
    DeviceArray<TypeParam> x(in.x), residual(in.add), y(in.x.size()), sum(in.x.size()), of_sum(in.x.size());
    run(x.data(), residual.data(), y.data(), sum.data());
    const std::vector<TypeParam> first = y.download();
    expect_same_bytes(sum.download(), want_sum, "sum");
    expect_close(first, in.y, kBound<TypeParam>, "y");
    expect_close(mean.download(), in.mean, 1e-5f, "mean");
    expect_close(rstd.download(), in.rstd, 1e-5f, "rstd");
    run(sum.data(), nullptr, of_sum.data(), nullptr);
    expect_same_bytes(of_sum.download(), first, "y of the sum");

    DeviceArray<TypeParam> over_x(in.x), again(in.x.size());
    run(over_x.data(), residual.data(), again.data(), over_x.data());
    expect_same_bytes(over_x.download(), want_sum, "sum over x");
    expect_same_bytes(again.download(), first, "y with the sum over x");
    run(x.data(), residual.data(), x.data(), residual.data());
    expect_same_bytes(residual.download(), want_sum, "sum over the residual");
    expect_same_bytes(x.download(), first, "y over x");
  }
}

TYPED_TEST(CudaLayerNorm, InputGradIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    if (c.width == 1) continue;  // dx is rounding alone
    for (const bool has_add : {false, true}) {
      SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", width " << c.width << ", add " << has_add);
      Inputs<TypeParam> in(c);
      std::vector<TypeParam> want(in.x.size());
      kernels::layer_norm_input_grad(in.x.data(), in.dy.data(), has_add ? in.add.data() : nullptr, in.gamma.data(),
                                     in.mean.data(), in.rstd.data(), c.width, want.data(), 0, c.rows);
      DeviceArray<TypeParam> x(in.x), dy(in.dy), add(in.add), dx(in.x.size()), again(in.x.size());
      DeviceArray<float> gamma(in.gamma), mean(in.mean), rstd(in.rstd);
      const auto run = [&](TypeParam* out) {
        cuda::layer_norm_input_grad(nullptr, x.data(), dy.data(), has_add ? add.data() : nullptr, gamma.data(),
                                    mean.data(), rstd.data(), c.rows, c.width, out);
      };
      run(dx.data());
      expect_close(dx.download(), want, kBound<TypeParam>, "dx");
      run(again.data());
      expect_same_bytes(again.download(), dx.download(), "dx");
      DeviceArray<TypeParam>& over = has_add ? add : dy;
      run(over.data());
      expect_same_bytes(over.download(), dx.download(), "dx in place");
    }
  }
}

TYPED_TEST(CudaLayerNorm, WeightGradIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", width " << c.width);
    Inputs<TypeParam> in(c);
    std::vector<float> partials(size(kernels::layer_norm_partials(c.rows, c.width)));
    std::vector<float> dgamma(size(c.width)), dbeta(size(c.width));
    kernels::layer_norm_weight_grad_reduce(in.x.data(), in.dy.data(), in.mean.data(), in.rstd.data(), c.rows, c.width,
                                           partials.data(), 0, kernels::row_chunks(c.rows));
    kernels::layer_norm_weight_grad(partials.data(), c.rows, c.width, dgamma.data(), dbeta.data(), 0, c.width);
    DeviceArray<TypeParam> x(in.x), dy(in.dy);
    DeviceArray<float> mean(in.mean), rstd(in.rstd);
    std::vector<float> first;
    for (const bool again : {false, true}) {
      DeviceArray<float> sums(size(cuda::layer_norm_partials(c.rows, c.width))), out(size(c.width)),
          shift(size(c.width));
      cuda::layer_norm_weight_grad_reduce(nullptr, x.data(), dy.data(), mean.data(), rstd.data(), c.rows, c.width,
                                          sums.data());
      cuda::layer_norm_weight_grad(nullptr, sums.data(), c.rows, c.width, out.data(), again ? nullptr : shift.data());
      // With one column every (x - mean) is 0 but for rounding.
      if (c.width > 1) expect_close(out.download(), dgamma, 1e-5f, "dgamma");
      if (!again) expect_close(shift.download(), dbeta, 1e-5f, "dbeta");
      if (again) expect_same_bytes(out.download(), first, "dgamma");
      first = out.download();
    }
  }
}

}  // namespace
}  // namespace overtake
