#include "kernels/cuda/group_norm.h"

#include "cuda/against_cpu.h"

namespace overtake {
namespace {

constexpr float kEpsilon = 1e-5f;

// Groups of whole packs, of parts of packs and of odd sizes; one chunk of pixels and many; one group, and one a
// channel.
const std::vector<kernels::GroupNormShape> kShapes = {
    {2, 49, 64, 8},    {3, 100, 32, 32}, {1, 4096, 64, 1}, {2, 5, 6, 3},      {1, 1, 8, 2},
    {70, 9, 16, 4},    {2, 1000, 48, 4}, {2, 37, 21, 7},   {1, 300, 130, 13}, {3, 64, 320, 32},
    {2, 700, 512, 32}, {33, 1, 24, 2},   {1, 40000, 8, 4}, {2, 16, 1280, 32}};

template <class T>
struct Inputs {
  explicit Inputs(const kernels::GroupNormShape& s)
      : shape(s),
        x(random_values<T>(s.batch * s.pixels * s.channels, 1, 0.5f, 2.0f)),
        dy(random_values<T>(s.batch * s.pixels * s.channels, 2, 0.1f)),
        gamma(random_values<float>(s.channels, 4, 1.0f, 0.3f)),
        beta(random_values<float>(s.channels, 5)),
        mean(size(s.batch * s.groups)),
        rstd(size(s.batch * s.groups)),
        y(x.size()) {
    kernels::group_norm_forward(s, x.data(), gamma.data(), beta.data(), kEpsilon, y.data(), mean.data(), rstd.data(), 0,
                                s.batch);
  }

  kernels::GroupNormShape shape;
  std::vector<T> x, dy;            // [batch][pixels][channels]
  std::vector<float> gamma, beta;  // [channels]
  std::vector<float> mean, rstd;   // [batch][groups], what the CPU gives
  std::vector<T> y;                // likewise
};

testing::Message name_of(const kernels::GroupNormShape& s) {
  return testing::Message() << s.batch << " x " << s.pixels << " x " << s.channels << " in " << s.groups;
}

DeviceArray<float> partials_of(const kernels::GroupNormShape& s) {
  return DeviceArray<float>(size(cuda::group_norm_partials(s)));
}

template <class T>
class CudaGroupNorm : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaGroupNorm, Types);

TYPED_TEST(CudaGroupNorm, ForwardIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const kernels::GroupNormShape& s : kShapes) {
    SCOPED_TRACE(name_of(s));
    const Inputs<TypeParam> in(s);
    DeviceArray<TypeParam> x(in.x), y(in.x.size()), again(in.x.size());
    DeviceArray<float> gamma(in.gamma), beta(in.beta), mean(in.mean.size()), rstd(in.rstd.size());
    const auto run = [&](TypeParam* out) {
      DeviceArray<float> partials = partials_of(s);
      cuda::group_norm_forward(nullptr, s, x.data(), gamma.data(), beta.data(), kEpsilon, out, mean.data(), rstd.data(),
                               partials.data());
      check_cuda(cudaDeviceSynchronize(), "group_norm_forward");
    };
    run(y.data());
    expect_close(y.download(), in.y, kBound<TypeParam>, "y");
    expect_close(mean.download(), in.mean, 1e-5f, "mean");
    expect_close(rstd.download(), in.rstd, 1e-5f, "rstd");
    run(again.data());
    expect_same_bytes(again.download(), y.download(), "y");
    run(x.data());
    expect_same_bytes(x.download(), y.download(), "y in place");
  }
}

TYPED_TEST(CudaGroupNorm, LargeMeansLoseNothing) {
  OVERTAKE_NEEDS_GPU();
  const kernels::GroupNormShape s{2, 500, 24, 3};
  Inputs<TypeParam> in(s);
  in.x = random_values<TypeParam>(s.batch * s.pixels * s.channels, 1, 1000.0f, sizeof(TypeParam) == 4 ? 1.0f : 50.0f);
  kernels::group_norm_forward(s, in.x.data(), in.gamma.data(), in.beta.data(), kEpsilon, in.y.data(), in.mean.data(),
                              in.rstd.data(), 0, s.batch);
  DeviceArray<TypeParam> x(in.x), y(in.x.size());
  DeviceArray<float> gamma(in.gamma), beta(in.beta), mean(in.mean.size()), rstd(in.rstd.size());
  DeviceArray<float> partials = partials_of(s);
  cuda::group_norm_forward(nullptr, s, x.data(), gamma.data(), beta.data(), kEpsilon, y.data(), mean.data(),
                           rstd.data(), partials.data());
  expect_close(rstd.download(), in.rstd, 1e-5f, "rstd");
  expect_close(y.download(), in.y, sizeof(TypeParam) == 4 ? 1e-4f : 1e-2f, "y");  // the mean itself is rounded
}

TYPED_TEST(CudaGroupNorm, InputGradIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const kernels::GroupNormShape& s : kShapes) {
    if (s.pixels * (s.channels / s.groups) < 4) continue;  // dx is rounding alone
    SCOPED_TRACE(name_of(s));
    const Inputs<TypeParam> in(s);
    std::vector<TypeParam> want(in.x.size());
    std::vector<float> sums(size(s.batch * s.groups * 2));
    kernels::group_norm_input_grad(s, in.x.data(), in.dy.data(), in.gamma.data(), in.mean.data(), in.rstd.data(),
                                   sums.data(), want.data(), 0, s.batch);
    DeviceArray<TypeParam> x(in.x), dy(in.dy), dx(in.x.size()), again(in.x.size());
    DeviceArray<float> gamma(in.gamma), mean(in.mean), rstd(in.rstd);
    const auto run = [&](TypeParam* out) {
      DeviceArray<float> partials = partials_of(s);
      cuda::group_norm_input_grad(nullptr, s, x.data(), dy.data(), gamma.data(), mean.data(), rstd.data(), out,
                                  partials.data());
      check_cuda(cudaDeviceSynchronize(), "group_norm_input_grad");
    };
    run(dx.data());
    expect_close(dx.download(), want, kBound<TypeParam>, "dx");
    run(again.data());
    expect_same_bytes(again.download(), dx.download(), "dx");
    run(dy.data());
    expect_same_bytes(dy.download(), dx.download(), "dx in place");
  }
}

TYPED_TEST(CudaGroupNorm, WeightGradIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const kernels::GroupNormShape& s : kShapes) {
    SCOPED_TRACE(name_of(s));
    const Inputs<TypeParam> in(s);
    std::vector<float> sums(size(s.batch * 2 * s.channels)), dgamma(size(s.channels)), dbeta(size(s.channels));
    kernels::group_norm_weight_grad_reduce(s, in.x.data(), in.dy.data(), in.mean.data(), in.rstd.data(), sums.data(), 0,
                                           s.batch);
    kernels::group_norm_weight_grad(s, sums.data(), dgamma.data(), dbeta.data(), 0, s.channels);
    DeviceArray<TypeParam> x(in.x), dy(in.dy);
    DeviceArray<float> mean(in.mean), rstd(in.rstd);
    std::vector<float> first;
    for (const bool again : {false, true}) {
      DeviceArray<float> partials = partials_of(s);
      DeviceArray<float> scale(dgamma.size()), shift(dbeta.size());
      cuda::group_norm_weight_grad_reduce(nullptr, s, x.data(), dy.data(), mean.data(), rstd.data(), partials.data());
      cuda::group_norm_weight_grad(nullptr, s, partials.data(), scale.data(), again ? nullptr : shift.data());
      expect_close(scale.download(), dgamma, 1e-5f, "dgamma");
      if (!again) expect_close(shift.download(), dbeta, 1e-5f, "dbeta");
      if (again) expect_same_bytes(scale.download(), first, "dgamma");
      first = scale.download();
    }
    DeviceArray<float> partials = partials_of(s), shift(dbeta.size());
    cuda::group_norm_weight_grad_reduce(nullptr, s, x.data(), dy.data(), mean.data(), rstd.data(), partials.data());
    cuda::group_norm_weight_grad(nullptr, s, partials.data(), nullptr, shift.data());
    expect_close(shift.download(), dbeta, 1e-5f, "dbeta alone");
  }
}

}  // namespace
}  // namespace overtake
