#include "kernels/cuda/batch_norm.h"

#include "cuda/against_cpu.h"

namespace overtake {
namespace {

using cuda::NormFunction;
using kernels::BatchNormChannels;
using kernels::BatchNormMask;

constexpr float kEpsilon = 1e-5f, kMomentum = 0.1f;

// One chunk and many, one tile of columns and several, narrow ones and the widest, whole packs and odd channel counts.
struct Case {
  std::int64_t rows, channels;
};
const std::vector<Case> kCases = {{2, 8},       {49, 3},     {1000, 64}, {513, 100},  {6272, 256}, {131, 72},
                                  {98, 2048},   {777, 65},   {40001, 8}, {40001, 24}, {3001, 1},   {70000, 4},
                                  {1037, 1001}, {40001, 72}, {999, 124}, {5000, 120}, {2000, 184}, {1500, 127}};

// All on the host. x is far from zero, as sums of squares fear it. mean, rstd: what the CPU gives for x.
template <class T>
struct Inputs {
  explicit Inputs(Case c)
      : x(random_values<T>(c.rows * c.channels, 1, 3.0f)),
        residual(random_values<T>(c.rows * c.channels, 2)),
        dy(random_values<T>(c.rows * c.channels, 3, 0.1f)),
        dy2(random_values<T>(c.rows * c.channels, 10, 0.2f)),
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

  std::vector<T> x, residual, dy, dy2;                                                         // [rows][channels]
  std::vector<float> gamma, beta, running_mean, running_var, mean, rstd, next_mean, next_var;  // [channels]
};

template <class T>
struct DeviceInputs {
  explicit DeviceInputs(const Inputs<T>& in)
      : x(in.x),
        residual(in.residual),
        dy(in.dy),
        dy2(in.dy2),
        mean(in.mean),
        rstd(in.rstd),
        gamma(in.gamma),
        beta(in.beta) {}

  BatchNormChannels norm() const { return {mean.data(), rstd.data(), gamma.data(), beta.data()}; }

  DeviceArray<T> x, residual, dy, dy2;
  DeviceArray<float> mean, rstd, gamma, beta;
};

DeviceArray<unsigned> new_counters(Case c) {
  return std::vector<unsigned>(size(cuda::batch_norm_counters(c.rows, c.channels)));
}

void expect_zero(const DeviceArray<unsigned>& counters) {
  for (const unsigned count : counters.download()) EXPECT_EQ(count, 0u) << "counters are not as they were";
}

// The functions that the CPU has not, at z, and their derivatives.
double value_of(NormFunction function, double z) {
  if (function == NormFunction::silu) return z / (1.0 + std::exp(-z));
  return z * std::clamp(z + 3.0, 0.0, 6.0) / 6.0;
}
double slope_of(NormFunction function, double z) {
  if (function == NormFunction::silu) {
    const double s = 1.0 / (1.0 + std::exp(-z));
    return s * (1.0 + z * (1.0 - s));
  }
  if (z <= -3.0) return 0.0;
  return z >= 3.0 ? 1.0 : z / 3.0 + 0.5;
}

// z of element i, in float as the kernels compute it: derivatives may jump, and here and there it must be on one side.
template <class T>
float value_before(const Inputs<T>& in, std::size_t i) {
  const std::size_t c = i % in.gamma.size();
  return std::fma(to_float(in.x[i]) - in.mean[c], in.gamma[c] * in.rstd[c], in.beta[c]);
}

template <class T>
class CudaBatchNorm : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaBatchNorm, Types);

// Three members of the same rows, each shifted by another number.
TYPED_TEST(CudaBatchNorm, JointStatisticsAreTheCpus) {
  OVERTAKE_NEEDS_GPU();
  constexpr std::int64_t kMembers = 3;
  for (const Case c : kCases) {
    SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", channels " << c.channels);
    std::vector<double> moments, gpu_moments;
    for (std::int64_t m = 0; m < kMembers; ++m) {
      const auto x =
          random_values<TypeParam>(c.rows * c.channels, static_cast<unsigned>(20 + m), static_cast<float>(m));
      std::vector<float> partials(size(kernels::batch_norm_partials(c.rows, c.channels)));
      std::vector<double> own(size(2 * c.channels));
      kernels::batch_norm_reduce(x.data(), c.rows, c.channels, partials.data(), 0, kernels::row_chunks(c.rows));
      kernels::batch_norm_moments(partials.data(), c.rows, c.channels, own.data(), 0, c.channels);
      moments.insert(moments.end(), own.begin(), own.end());
      DeviceArray<TypeParam> gpu_x(x);
      DeviceArray<unsigned> counters = new_counters(c);
      DeviceArray<float> gpu_partials(size(cuda::batch_norm_partials(c.rows, c.channels)));
      DeviceArray<double> gpu_own(own.size());
      cuda::batch_norm_moments(nullptr, gpu_x.data(), c.rows, c.channels, gpu_own.data(), gpu_partials.data(),
                               counters.data());
      expect_zero(counters);
      const std::vector<double> got = gpu_own.download();
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], own[i], 1e-5 * (1 + std::abs(own[i]))) << i;
      gpu_moments.insert(gpu_moments.end(), got.begin(), got.end());
    }
    const Inputs<TypeParam> in(c);
    std::vector<float> mean(size(c.channels)), rstd(mean), next_mean(in.running_mean), next_var(in.running_var);
    kernels::batch_norm_joint_statistics(moments.data(), kMembers, c.rows, c.channels, kEpsilon, kMomentum, mean.data(),
                                         rstd.data(), next_mean.data(), next_var.data(), 0, c.channels);
    DeviceArray<double> all(gpu_moments);
    DeviceArray<float> gpu_mean(mean.size()), gpu_rstd(mean.size()), gpu_next_mean(in.running_mean),
        gpu_next_var(in.running_var);
    cuda::batch_norm_joint_statistics(nullptr, all.data(), kMembers, c.rows, c.channels, kEpsilon, kMomentum,
                                      gpu_mean.data(), gpu_rstd.data(), gpu_next_mean.data(), gpu_next_var.data());
    expect_close(gpu_mean.download(), mean, 1e-5f, "mean");
    expect_close(gpu_rstd.download(), rstd, 1e-5f, "rstd");
    expect_close(gpu_next_mean.download(), next_mean, 1e-5f, "running_mean");
    expect_close(gpu_next_var.download(), next_var, 1e-5f, "running_var");
  }
}

TYPED_TEST(CudaBatchNorm, StatisticsAreTheCpus) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : kCases) {
    SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", channels " << c.channels);
    const Inputs<TypeParam> in(c);
    DeviceArray<TypeParam> x(in.x);
    DeviceArray<unsigned> counters = new_counters(c);
    std::vector<float> first_mean, first_rstd;
    for (const bool again : {false, true}) {
      DeviceArray<float> partials(size(cuda::batch_norm_partials(c.rows, c.channels)));
      DeviceArray<float> mean(size(c.channels)), rstd(size(c.channels)), next_mean(in.running_mean),
          next_var(in.running_var);
      cuda::batch_norm_statistics(nullptr, x.data(), c.rows, c.channels, kEpsilon, kMomentum, mean.data(), rstd.data(),
                                  again ? nullptr : next_mean.data(), again ? nullptr : next_var.data(),
                                  partials.data(), counters.data());
      expect_close(mean.download(), in.mean, 1e-5f, "mean");
      expect_close(rstd.download(), in.rstd, 1e-5f, "rstd");
      // Without arrays to move, the ones here keep what was uploaded.
      expect_close(next_mean.download(), again ? in.running_mean : in.next_mean, 1e-5f, "running_mean");
      expect_close(next_var.download(), again ? in.running_var : in.next_var, 1e-5f, "running_var");
      if (again) {
        expect_same_bytes(mean.download(), first_mean, "mean");
        expect_same_bytes(rstd.download(), first_rstd, "rstd");
      }
      first_mean = mean.download(), first_rstd = rstd.download();
      expect_zero(counters);
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
                                 c.channels, relu ? NormFunction::relu : NormFunction::none, out);
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

// What weight_grad gave for one call.
template <class T>
struct WeightGrad {
  // dz: null, or in place over a gradient, or an array of its own. counters: shared by all calls.
  WeightGrad(Case c, const DeviceInputs<T>& in, const T* dy, const T* dy2, const T* y, NormFunction function,
             BatchNormMask mask, T* dz, DeviceArray<unsigned>& counters) {
    DeviceArray<float> partials(size(cuda::batch_norm_grad_partials(c.rows, c.channels)));
    DeviceArray<float> got_dgamma(size(c.channels)), got_dbeta(size(c.channels));
    cuda::batch_norm_weight_grad(nullptr, in.x.data(), dy, dy2, y, in.norm(), function, mask, c.rows, c.channels, dz,
                                 got_dgamma.data(), got_dbeta.data(), partials.data(), counters.data());
    dgamma = got_dgamma.download();
    dbeta = got_dbeta.download();
    expect_zero(counters);
  }

  void expect_close_to(const std::vector<float>& want_dgamma, const std::vector<float>& want_dbeta, float bound) const {
    expect_close(dgamma, want_dgamma, bound, "dgamma");
    expect_close(dbeta, want_dbeta, bound, "dbeta");
  }
  void expect_same_as(const WeightGrad& other) const {
    expect_same_bytes(dgamma, other.dgamma, "dgamma");
    expect_same_bytes(dbeta, other.dbeta, "dbeta");
  }

  std::vector<float> dgamma, dbeta;  // [channels]
};

TYPED_TEST(CudaBatchNorm, WeightGradIsTheCpus) {
  OVERTAKE_NEEDS_GPU();
  using enum BatchNormMask;
  for (const Case c : kCases) {
    const Inputs<TypeParam> in(c);
    std::vector<TypeParam> y(in.x.size()), sum(in.x.size());  // about half of y is 0
    kernels::batch_norm_apply(in.x.data(), in.residual.data(), in.norm(), c.channels, true, y.data(), 0, c.rows);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = from_float<TypeParam>(to_float(in.dy[i]) + to_float(in.dy2[i]));
    }
    DeviceArray<unsigned> counters = new_counters(c);
    for (const bool has_second : {false, true}) {
      for (const BatchNormMask mask : {none, from_x, from_y}) {
        SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", channels " << c.channels << ", mask "
                                        << static_cast<int>(mask) << ", dy2 " << has_second);
        std::vector<TypeParam> want_dz(in.x.size());
        std::vector<float> sums(size(kernels::batch_norm_grad_partials(c.rows, c.channels)));
        std::vector<float> dgamma(size(c.channels)), dbeta(size(c.channels));
        kernels::batch_norm_grad_reduce(in.x.data(), has_second ? sum.data() : in.dy.data(), y.data(), in.norm(), mask,
                                        c.rows, c.channels, want_dz.data(), sums.data(), 0,
                                        kernels::row_chunks(c.rows));
        kernels::batch_norm_weight_grad(sums.data(), c.rows, c.channels, in.rstd.data(), dgamma.data(), dbeta.data(), 0,
                                        c.channels);
        DeviceInputs<TypeParam> on(in);
        DeviceArray<TypeParam> device_y(y), dz(in.x.size());
        const auto run = [&](TypeParam* into) {
          return WeightGrad<TypeParam>(c, on, on.dy.data(), has_second ? on.dy2.data() : nullptr,
                                       mask == from_y ? device_y.data() : nullptr,
                                       mask == none ? NormFunction::none : NormFunction::relu, mask, into, counters);
        };
        const WeightGrad<TypeParam> got = run(dz.data());
        got.expect_close_to(dgamma, dbeta, 1e-5f);
        expect_same_bytes(dz.download(), want_dz, "dz");  // the same mask, bit for bit
        // Without dz the sums are of what was not rounded.
        run(nullptr).expect_close_to(dgamma, dbeta, has_second ? kBound<TypeParam> : 1e-5f);
        DeviceArray<TypeParam>& over = has_second ? on.dy2 : on.dy;
        run(over.data()).expect_same_as(got);
        expect_same_bytes(over.download(), want_dz, "dz in place");
      }
    }
  }
}

TYPED_TEST(CudaBatchNorm, WeightGradLeavesOutWhatIsNull) {
  OVERTAKE_NEEDS_GPU();
  const Case c{3000, 40};
  const Inputs<TypeParam> in(c);
  DeviceInputs<TypeParam> on(in);
  DeviceArray<unsigned> counters = new_counters(c);
  const WeightGrad<TypeParam> want(c, on, on.dy.data(), nullptr, nullptr, NormFunction::relu, BatchNormMask::from_x,
                                   nullptr, counters);
  for (const bool is_gamma : {false, true}) {
    DeviceArray<float> partials(size(cuda::batch_norm_grad_partials(c.rows, c.channels))), got(size(c.channels));
    cuda::batch_norm_weight_grad<TypeParam>(nullptr, on.x.data(), on.dy.data(), nullptr, nullptr, on.norm(),
                                            NormFunction::relu, BatchNormMask::from_x, c.rows, c.channels, nullptr,
                                            is_gamma ? got.data() : nullptr, is_gamma ? nullptr : got.data(),
                                            partials.data(), counters.data());
    expect_same_bytes(got.download(), is_gamma ? want.dgamma : want.dbeta, is_gamma ? "dgamma" : "dbeta");
  }
}

TYPED_TEST(CudaBatchNorm, FunctionsAreTheFormulas) {
  OVERTAKE_NEEDS_GPU();
  for (const Case c : {Case{49, 3}, Case{1000, 64}, Case{6272, 256}, Case{777, 65}, Case{5000, 120}}) {
    const Inputs<TypeParam> in(c);
    DeviceArray<unsigned> counters = new_counters(c);
    const std::vector<float> dgamma = random_values<float>(c.channels, 8, 0.0f, static_cast<float>(c.rows) / 4),
                             dbeta = random_values<float>(c.channels, 9, 0.0f, static_cast<float>(c.rows) / 4);
    for (const NormFunction function : {NormFunction::hard_swish, NormFunction::silu}) {
      SCOPED_TRACE(testing::Message() << "rows " << c.rows << ", channels " << c.channels << ", function "
                                      << static_cast<int>(function));
      std::vector<TypeParam> y(in.x.size()), dz(in.x.size()), both(in.x.size()), dx(in.x.size());
      std::vector<double> sums(size(c.channels)), products(size(c.channels));
      for (std::size_t i = 0; i < in.x.size(); ++i) {
        const std::size_t ch = i % size(c.channels);
        const double z = static_cast<double>(value_before(in, i)), slope = slope_of(function, z);
        const double deviation = static_cast<double>(to_float(in.x[i]) - in.mean[ch]),
                     rstd = static_cast<double>(in.rstd[ch]), rows = static_cast<double>(c.rows);
        const double dy = static_cast<double>(to_float(in.dy[i])), dy2 = static_cast<double>(to_float(in.dy2[i]));
        y[i] = from_float<TypeParam>(static_cast<float>(value_of(function, z)));
        dz[i] = from_float<TypeParam>(static_cast<float>(dy * slope));
        both[i] = from_float<TypeParam>(static_cast<float>((dy + dy2) * slope));
        sums[ch] += dy * slope;
        products[ch] += dy * slope * deviation * rstd;
        const double centered = dy * slope - static_cast<double>(dbeta[ch]) / rows -
                                deviation * rstd * static_cast<double>(dgamma[ch]) / rows;
        dx[i] = from_float<TypeParam>(static_cast<float>(static_cast<double>(in.gamma[ch]) * rstd * centered));
      }
      const std::vector<float> want_dgamma(products.begin(), products.end()), want_dbeta(sums.begin(), sums.end());

      DeviceInputs<TypeParam> on(in);
      DeviceArray<TypeParam> got(in.x.size());
      cuda::batch_norm_apply<TypeParam>(nullptr, on.x.data(), nullptr, on.norm(), c.rows, c.channels, function,
                                        got.data());
      expect_close(got.download(), y, kBound<TypeParam>, "y");

      const auto run = [&](const TypeParam* dy2, TypeParam* into) {
        return WeightGrad<TypeParam>(c, on, on.dy.data(), dy2, nullptr, function, BatchNormMask::from_x, into,
                                     counters);
      };
      run(nullptr, nullptr).expect_close_to(want_dgamma, want_dbeta, 2e-5f);
      const WeightGrad<TypeParam> stored = run(nullptr, got.data());
      stored.expect_close_to(want_dgamma, want_dbeta, kBound<TypeParam>);
      expect_close(got.download(), dz, kBound<TypeParam>, "dz");
      // The sums are those of the dz that was stored.
      WeightGrad<TypeParam>(c, on, got.data(), nullptr, nullptr, NormFunction::none, BatchNormMask::none, nullptr,
                            counters)
          .expect_same_as(stored);
      run(on.dy2.data(), got.data());
      expect_close(got.download(), both, kBound<TypeParam>, "dz of two gradients");

      DeviceArray<float> device_dgamma(dgamma), device_dbeta(dbeta);
      cuda::batch_norm_input_grad(nullptr, on.x.data(), on.dy.data(), on.norm(), device_dgamma.data(),
                                  device_dbeta.data(), function, c.rows, c.channels, got.data());
      expect_close(got.download(), dx, kBound<TypeParam>, "dx");
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
        cuda::batch_norm_input_grad(
            nullptr, on.x.data(), on.dy.data(), on.norm(), device_dgamma.data(), device_dbeta.data(),
            mask == BatchNormMask::none ? NormFunction::none : NormFunction::relu, c.rows, c.channels, out);
      };
      run(dx.data());
      expect_close(dx.download(), want, kBound<TypeParam>, "dx");
      run(on.dy.data());
      expect_same_bytes(on.dy.download(), dx.download(), "dx in place");
    }
  }
}

TEST(CudaBatchNormErrors, ResidualsGoWithReluOnly) {
  alignas(16) float residual[4] = {};
  EXPECT_THROW(cuda::batch_norm_apply<float>(nullptr, nullptr, residual, {}, 1, 4, NormFunction::silu, nullptr),
               std::logic_error);
  EXPECT_THROW(
      cuda::batch_norm_weight_grad<float>(nullptr, nullptr, nullptr, nullptr, residual, {}, NormFunction::hard_swish,
                                          BatchNormMask::from_y, 1, 4, nullptr, nullptr, nullptr, nullptr, nullptr),
      std::logic_error);
}

}  // namespace
}  // namespace overtake
