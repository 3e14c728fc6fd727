#include "kernels/cuda/batch_norm.h"

#include "cuda/against_cpu.h"

namespace overtake {
namespace {

using kernels::BatchNormChannels;
using kernels::BatchNormMask;

constexpr float kEpsilon = 1e-5f, kMomentum = 0.1f;

// One chunk and many, one tile of columns and several, whole packs and odd channel counts.
struct Case {
  std::int64_t rows, channels;
};
const std::vector<Case> kCases = {{2, 8},    {49, 3},     {1000, 64},  {513, 100}, {6272, 256}, {131, 72},   {98, 2048},
                                  {777, 65}, {40001, 16}, {40001, 24}, {3001, 1},  {70000, 4},  {1037, 1001}};

// All on the host. x is far from zero, as sums of squares fear it. mean, rstd: what the CPU gives for x.
template <class T>
struct Inputs {
  explicit Inputs(Case c)
      : x(random_values<T>(c.rows * c.channels, 1, 3.0f)),
        residual(random_values<T>(c.rows * c.channels, 2)),
        dy(random_values<T>(c.rows * c.channels, 3, 0.1f)),
        gamma(random_values<float>(c.channels, 4, 1.0f, 0.3f)),
        beta(random_values<float>(c.channels, 5)),
        running_mean(random_values<float>(c.channels, 6)),
        running_var(random_values<float>(c.channels, 7, 5.0f, 0.1f)),
        mean(size(c.channels)),
        rstd(size(c.channels)),
        next_mean(running_mean),
        next_var(running_var) {
    std::vector<float> partials(size(kernels::batch_norm_partials(c.rows, c.channels)));
    kernels::batch_norm_reduce(x.data(), c.rows, c.channels, partials.data(), 0, kernels::row_chunks(c.rows));
    kernels::batch_norm_statistics(partials.data(), c.rows, c.channels, kEpsilon, kMomentum, mean.data(), rstd.data(),
                                   next_mean.data(), next_var.data(), 0, c.channels);
  }

  BatchNormChannels norm() const { return {mean.data(), rstd.data(), gamma.data(), beta.data()}; }

  std::vector<T> x, residual, dy;                                                              // [rows][channels]
  std::vector<float> gamma, beta, running_mean, running_var, mean, rstd, next_mean, next_var;  // [channels]
};

template <class T>
struct DeviceInputs {
  explicit DeviceInputs(const Inputs<T>& in)
      : x(in.x), residual(in.residual), dy(in.dy), mean(in.mean), rstd(in.rstd), gamma(in.gamma), beta(in.beta) {}

  BatchNormChannels norm() const { return {mean.data(), rstd.data(), gamma.data(), beta.data()}; }

  DeviceArray<T> x, residual, dy;
  DeviceArray<float> mean, rstd, gamma, beta;
};

template <class T>
class CudaBatchNorm : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaBatchNorm, Types);

TYPED_TEST(CudaBatchNorm, StatisticsAreTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", channels " << c.channels);
    const Inputs<TypeParam> in(c);
    DeviceArray<TypeParam> x(in.x);
    std::vector<float> first;
    for (const bool again : {false, true}) {
      DeviceArray<float> partials(size(cuda::batch_norm_partials(c.rows, c.channels)));
      DeviceArray<float> mean(size(c.channels)), rstd(size(c.channels)), next_mean(in.running_mean),
          next_var(in.running_var);
      cuda::batch_norm_reduce(nullptr, x.data(), c.rows, c.channels, partials.data());
      cuda::batch_norm_statistics(nullptr, partials.data(), c.rows, c.channels, kEpsilon, kMomentum, mean.data(),
                                  rstd.data(), again ? nullptr : next_mean.data(), again ? nullptr : next_var.data());
      expect_close(mean.download(), in.mean, 1e-5f, "mean");
      expect_close(rstd.download(), in.rstd, 1e-5f, "rstd");
      // Without arrays to move, the ones here keep what was uploaded.
      expect_close(next_mean.download(), again ? in.running_mean : in.next_mean, 1e-5f, "running_mean");
      expect_close(next_var.download(), again ? in.running_var : in.next_var, 1e-5f, "running_var");
      if (again) expect_same_bytes(rstd.download(), first, "rstd");
      first = rstd.download();
    }
  }
}

TYPED_TEST(CudaBatchNorm, RunningRstdIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const std::int64_t channels : {1, 100, 1000}) {
    const std::vector<float> var = random_values<float>(channels, 1, 5.0f, 0.5f);
    std::vector<float> want(size(channels));
    kernels::batch_norm_running_rstd(var.data(), kEpsilon, want.data(), 0, channels);
    DeviceArray<float> running_var(var), rstd(size(channels));
    cuda::batch_norm_running_rstd(nullptr, running_var.data(), kEpsilon, channels, rstd.data());
    expect_close(rstd.download(), want, 1e-6f, "rstd");
  }
}

TYPED_TEST(CudaBatchNorm, ApplyIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    const Inputs<TypeParam> in(c);
    for (const bool has_residual : {false, true}) {
      for (const bool relu : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", channels " << c.channels << ", residual "
                                        << has_residual << ", relu " << relu);
        std::vector<TypeParam> want(in.x.size());
        kernels::batch_norm_apply(in.x.data(), has_residual ? in.residual.data() : nullptr, in.norm(), c.channels, relu,
                                  want.data(), 0, c.rows);
        DeviceInputs<TypeParam> on(in);
        DeviceArray<TypeParam> y(in.x.size());
        const auto run = [&](TypeParam* out) {
          cuda::batch_norm_apply(nullptr, on.x.data(), has_residual ? on.residual.data() : nullptr, on.norm(), c.rows,
                                 c.channels, relu, out);
        };
        run(y.data());
        expect_close(y.download(), want, kBound<TypeParam>, "y");
        DeviceArray<TypeParam>& over = has_residual ? on.residual : on.x;
        run(over.data());
        expect_same_bytes(over.download(), y.download(), "y in place");
      }
    }
  }
}

TYPED_TEST(CudaBatchNorm, WeightGradIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using enum BatchNormMask;
  for (const Case c : kCases) {
    const Inputs<TypeParam> in(c);
    std::vector<TypeParam> y(in.x.size());  // about half of it 0
    kernels::batch_norm_apply(in.x.data(), in.residual.data(), in.norm(), c.channels, true, y.data(), 0, c.rows);
    for (const BatchNormMask mask : {none, from_x, from_y}) {
      SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", channels " << c.channels << ", mask "
                                      << static_cast<int>(mask));
      std::vector<TypeParam> want_dz(in.x.size());
      std::vector<float> sums(size(kernels::batch_norm_grad_partials(c.rows, c.channels)));
      std::vector<float> dgamma(size(c.channels)), dbeta(size(c.channels));
      kernels::batch_norm_grad_reduce(in.x.data(), in.dy.data(), y.data(), in.norm(), mask, c.rows, c.channels,
                                      want_dz.data(), sums.data(), 0, kernels::row_chunks(c.rows));
      kernels::batch_norm_weight_grad(sums.data(), c.rows, c.channels, in.rstd.data(), dgamma.data(), dbeta.data(), 0,
                                      c.channels);
      DeviceInputs<TypeParam> on(in);
      DeviceArray<TypeParam> device_y(y), dz(in.x.size());
      std::vector<float> first;
      // dz into its own array, in place over dy, and not at all (from dz, which is masked already).
      for (int run = 0; run < 3; ++run) {
        DeviceArray<float> partials(size(cuda::batch_norm_grad_partials(c.rows, c.channels)));
        DeviceArray<float> got_dgamma(size(c.channels)), got_dbeta(size(c.channels));
        TypeParam* const into[] = {dz.data(), on.dy.data(), nullptr};
        cuda::batch_norm_grad_reduce(nullptr, on.x.data(), on.dy.data(), mask == from_y ? device_y.data() : nullptr,
                                     on.norm(), mask, c.rows, c.channels, into[run], partials.data());
        cuda::batch_norm_weight_grad(nullptr, partials.data(), c.rows, c.channels, on.rstd.data(), got_dgamma.data(),
                                     got_dbeta.data());
        expect_close(got_dgamma.download(), dgamma, 1e-5f, "dgamma");
        expect_close(got_dbeta.download(), dbeta, 1e-5f, "dbeta");
        if (run > 0) expect_same_bytes(got_dgamma.download(), first, "dgamma");
        first = got_dgamma.download();
      }
      expect_same_bytes(dz.download(), want_dz, "dz");  // the same mask, bit for bit
      expect_same_bytes(on.dy.download(), want_dz, "dz in place");
    }
  }
}

TYPED_TEST(CudaBatchNorm, InputGradIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    const Inputs<TypeParam> in(c);
    const std::vector<float> dgamma = random_values<float>(c.channels, 8, 0.0f, static_cast<float>(c.rows) / 4),
                             dbeta = random_values<float>(c.channels, 9, 0.0f, static_cast<float>(c.rows) / 4);
    for (const BatchNormMask mask : {BatchNormMask::none, BatchNormMask::from_x}) {
      SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", channels " << c.channels << ", mask "
                                      << static_cast<int>(mask));
      std::vector<TypeParam> want(in.x.size());
      kernels::batch_norm_input_grad(in.x.data(), in.dy.data(), in.norm(), dgamma.data(), dbeta.data(), mask, c.rows,
                                     c.channels, want.data(), 0, c.rows);
      DeviceInputs<TypeParam> on(in);
      DeviceArray<float> device_dgamma(dgamma), device_dbeta(dbeta);
      DeviceArray<TypeParam> dx(in.x.size());
      const auto run = [&](TypeParam* out) {
        cuda::batch_norm_input_grad(nullptr, on.x.data(), on.dy.data(), on.norm(), device_dgamma.data(),
                                    device_dbeta.data(), mask, c.rows, c.channels, out);
      };
      run(dx.data());
      expect_close(dx.download(), want, kBound<TypeParam>, "dx");
      run(on.dy.data());
      expect_same_bytes(on.dy.download(), dx.download(), "dx in place");
    }
  }
}

TEST(CudaBatchNormErrors, InputGradTakesTheMaskedGradient) {
  EXPECT_THROW(cuda::batch_norm_input_grad<float>(nullptr, nullptr, nullptr, {}, nullptr, nullptr,
                                                  BatchNormMask::from_y, 1, 4, nullptr),
               std::logic_error);
}

}  // namespace
}  // namespace overtake
