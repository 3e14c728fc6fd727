// Batch norm of rows that several members have: against double loops over all of them, gradients against central
// differences of those.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/cpu/batch_norm.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

constexpr float kEpsilon = 1e-5f, kMomentum = 0.1f;

struct Case {
  std::int64_t members, rows, channels;
  float low, high;
};
const std::vector<Case> kCases = {{2, 37, 5, -1, 3}, {3, 300, 17, -2, 2}, {4, 1, 3, -1, 1}, {2, 2000, 2, 9999, 10001}};

// Of a channel, over all rows.
struct Reference {
  double mean, variance, rstd;
};
Reference statistics(const Doubles& x, std::int64_t channels, std::size_t channel) {
  const double count = static_cast<double>(x.size()) / static_cast<double>(channels);
  double mean = 0, variance = 0;
  for (std::size_t i = channel; i < x.size(); i += index(channels)) mean += x[i] / count;
  for (std::size_t i = channel; i < x.size(); i += index(channels)) variance += (x[i] - mean) * (x[i] - mean) / count;
  return {mean, variance, 1 / std::sqrt(variance + static_cast<double>(kEpsilon))};
}

// What all members know after telling each other: x [members][rows][channels].
struct Joint {
  Floats mean, rstd, running_mean, running_var;
};
Joint joint_statistics(const Case& c, const Floats& x) {
  std::vector<double> moments;
  for (std::int64_t m = 0; m < c.members; ++m) {
    const float* own = x.data() + m * c.rows * c.channels;
    Floats partials(index(batch_norm_partials(c.rows, c.channels)));
    batch_norm_reduce(own, c.rows, c.channels, partials.data(), 0, row_chunks(c.rows));
    const auto two =
        run_whole_and_split<double>(2 * c.channels, c.channels, [&](double* out, std::int64_t begin, std::int64_t end) {
          batch_norm_moments(partials.data(), c.rows, c.channels, out, begin, end);
        });
    moments.insert(moments.end(), two.begin(), two.end());
  }
  Joint j{{}, Floats(index(c.channels)), Floats(index(c.channels), 0.5f), Floats(index(c.channels), 2.0f)};
  j.mean = run_whole_and_split<float>(c.channels, c.channels, [&](float* out, std::int64_t begin, std::int64_t end) {
    Floats running_mean(index(c.channels), 0.5f), running_var(index(c.channels), 2.0f);
    batch_norm_joint_statistics(moments.data(), c.members, c.rows, c.channels, kEpsilon, kMomentum, out, j.rstd.data(),
                                running_mean.data(), running_var.data(), begin, end);
    for (std::size_t i = index(begin); i < index(end); ++i) {
      j.running_mean[i] = running_mean[i];
      j.running_var[i] = running_var[i];
    }
  });
  return j;
}

TEST(JointBatchNorm, StatisticsOfAllRows) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.members << " x " << c.rows << " x " << c.channels);
    const auto x = random_tensor<float>(c.members * c.rows * c.channels, 1, c.low, c.high);
    const Joint got = joint_statistics(c, x);
    Doubles mean, rstd, running_mean, running_var;
    const double rows = static_cast<double>(c.members * c.rows);
    for (std::size_t k = 0; k < index(c.channels); ++k) {
      const Reference r = statistics(to_doubles(x), c.channels, k);
      mean.push_back(r.mean);
      rstd.push_back(r.rstd);
      running_mean.push_back(0.9 * 0.5 + 0.1 * r.mean);
      running_var.push_back(0.9 * 2.0 + 0.1 * r.variance * rows / (rows - 1));
    }
    expect_close(got.mean, mean, 1e-6, 1);
    expect_close(got.rstd, rstd, 2e-6);
    expect_close(got.running_mean, running_mean, 1e-6, 1);
    expect_close(got.running_var, running_var, 1e-6, 1);
  }
}

// The loss is the sum of relu(norm(x)) * dy over all members.
TEST(JointBatchNorm, InputGradientThroughTheStatisticsOfAllRows) {
  const Case c{3, 21, 4, -1, 3};
  const std::int64_t each = c.rows * c.channels;
  const auto x = random_tensor<float>(c.members * each, 1, c.low, c.high),
             dy = random_tensor<float>(c.members * each, 2);
  const auto gamma = random_tensor<float>(c.channels, 3), beta = random_tensor<float>(c.channels, 4);
  const auto loss = [&](const Doubles& v) {
    double sum = 0;
    for (std::size_t k = 0; k < index(c.channels); ++k) {
      const Reference r = statistics(v, c.channels, k);
      for (std::size_t i = k; i < v.size(); i += index(c.channels)) {
        const double z = (v[i] - r.mean) * r.rstd * static_cast<double>(gamma[k]) + static_cast<double>(beta[k]);
        sum += std::max(z, 0.0) * static_cast<double>(dy[i]);
      }
    }
    return sum;
  };
  Doubles want, at = to_doubles(x);
  for (double& v : at) {
    const double kept = v, h = 1e-5;
    v = kept + h;
    const double above = loss(at);
    v = kept - h;
    want.push_back((above - loss(at)) / (2 * h));
    v = kept;
  }
  const Joint j = joint_statistics(c, x);
  const BatchNormChannels norm{j.mean.data(), j.rstd.data(), gamma.data(), beta.data()};
  Floats dgamma(index(c.channels)), dbeta(index(c.channels)), dx;
  for (std::int64_t m = 0; m < c.members; ++m) {
    Floats partials(index(batch_norm_grad_partials(c.rows, c.channels))), own_gamma(dgamma), own_beta(dbeta);
    batch_norm_grad_reduce<float>(x.data() + m * each, dy.data() + m * each, nullptr, norm, BatchNormMask::from_x,
                                  c.rows, c.channels, nullptr, partials.data(), 0, row_chunks(c.rows));
    batch_norm_weight_grad(partials.data(), c.rows, c.channels, norm.rstd, own_gamma.data(), own_beta.data(), 0,
                           c.channels);
    for (std::size_t k = 0; k < dgamma.size(); ++k) {
      dgamma[k] += own_gamma[k];
      dbeta[k] += own_beta[k];
    }
  }
  for (std::int64_t m = 0; m < c.members; ++m) {
    const auto own = run_whole_and_split<float>(each, c.rows, [&](float* out, std::int64_t begin, std::int64_t end) {
      batch_norm_input_grad(x.data() + m * each, dy.data() + m * each, norm, dgamma.data(), dbeta.data(),
                            BatchNormMask::from_x, c.members * c.rows, c.channels, out, begin, end);
    });
    dx.insert(dx.end(), own.begin(), own.end());
  }
  expect_close(dx, want, 2e-5, 1);
}

}  // namespace
}  // namespace overtake::kernels
