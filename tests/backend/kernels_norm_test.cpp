// Batch, layer and group normalisation against double loops, gradients against central differences of those.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/cpu/batch_norm.h"
#include "kernels/cpu/group_norm.h"
#include "kernels/cpu/layer_norm.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

constexpr float kEpsilon = 1e-5f;

// d loss / d values, element by element.
Doubles differences(Doubles values, const std::function<double(const Doubles&)>& loss) {
  Doubles result;
  for (double& value : values) {
    const double kept = value, h = 1e-5;
    value = kept + h;
    const double above = loss(values);
    value = kept - h;
    const double below = loss(values);
    value = kept;
    result.push_back((above - below) / (2 * h));
  }
  return result;
}

// sum of a * b
double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The mean and 1 / sqrt(variance + epsilon) of the elements that `belongs` picks.
struct Reference {
  double mean, variance, rstd;
};
Reference statistics(const Doubles& x, const std::function<bool(std::size_t)>& belongs) {
  double count = 0, sum = 0, squared = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (belongs(i)) count += 1, sum += x[i];
  }
  const double mean = sum / count;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (belongs(i)) squared += (x[i] - mean) * (x[i] - mean);
  }
  return {mean, squared / count, 1 / std::sqrt(squared / count + static_cast<double>(kEpsilon))};
}

template <class T>
class Norm : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Norm, Types);

// --- batch norm ---------------------------------------------------------------------------------------------------

struct BatchCase {
  std::int64_t rows, channels;
  bool residual, relu;
};

std::vector<BatchCase> batch_cases() {
  return {{300, 3, false, false}, {37, 7, false, true}, {70, 17, true, true},
          {20, 16, true, false},  {2, 33, false, true}, {513, 1, false, true}};
}

Doubles batch_norm_reference(const BatchCase& s, const Doubles& x, const Doubles& residual, const Doubles& gamma,
                             const Doubles& beta) {
  Doubles y(x.size());
  const std::size_t channels = index(s.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const Reference r = statistics(x, [&](std::size_t i) { return i % channels == c; });
    for (std::size_t i = c; i < x.size(); i += channels) {
      y[i] = (x[i] - r.mean) * r.rstd * gamma[c] + beta[c];
      if (s.residual) y[i] += residual[i];
      if (s.relu) y[i] = std::max(y[i], 0.0);
    }
  }
  return y;
}

struct BatchStatistics {
  Floats mean, rstd, running_mean, running_var;
};

template <class T>
BatchStatistics batch_statistics(const std::vector<T>& x, std::int64_t rows, std::int64_t channels, float momentum) {
  const auto partials = run_whole_and_split<float>(batch_norm_partials(rows, channels), row_chunks(rows),
                                                   [&](float* out, std::int64_t begin, std::int64_t end) {
                                                     batch_norm_reduce(x.data(), rows, channels, out, begin, end);
                                                   });
  const auto count = index(channels);
  BatchStatistics s{Floats(count), Floats(count), Floats(count, 0.5f), Floats(count, 2.0f)};
  const Floats old_mean = s.running_mean, old_var = s.running_var;
  s.mean = run_whole_and_split<float>(channels, channels, [&](float* out, std::int64_t begin, std::int64_t end) {
    batch_norm_statistics(partials.data(), rows, channels, kEpsilon, momentum, out, s.rstd.data(), nullptr, nullptr,
                          begin, end);
  });
  s.running_var = run_whole_and_split<float>(
      channels, channels,
      [&](float* out, std::int64_t begin, std::int64_t end) {
        Floats mean(count), rstd(count), running_mean = old_mean;
        batch_norm_statistics(partials.data(), rows, channels, kEpsilon, momentum, mean.data(), rstd.data(),
                              running_mean.data(), out, begin, end);
        for (std::int64_t c = begin; c < end; ++c) s.running_mean[index(c)] = running_mean[index(c)];
      },
      &old_var);
  return s;
}

TYPED_TEST(Norm, BatchForward) {
  for (const BatchCase& s : batch_cases()) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.channels);
    const std::int64_t count = s.rows * s.channels;
    const auto x = random_tensor<TypeParam>(count, 1, -1, 3), residual = random_tensor<TypeParam>(count, 2);
    const auto gamma = random_tensor<float>(s.channels, 3), beta = random_tensor<float>(s.channels, 4);
    const float momentum = 0.1f;
    const BatchStatistics got = batch_statistics(x, s.rows, s.channels, momentum);
    Doubles mean, rstd, running_mean, running_var;
    const Doubles xd = to_doubles(x);
    for (std::size_t c = 0; c < index(s.channels); ++c) {
      const Reference r = statistics(xd, [&](std::size_t i) { return i % index(s.channels) == c; });
      const double rows = static_cast<double>(s.rows);
      mean.push_back(r.mean);
      rstd.push_back(r.rstd);
      running_mean.push_back(0.9 * 0.5 + 0.1 * r.mean);
      running_var.push_back(0.9 * 2.0 + 0.1 * r.variance * rows / (rows - 1));
    }
    expect_close(got.mean, mean, 1e-6, 1);
    expect_close(got.rstd, rstd, 2e-6);
    expect_close(got.running_mean, running_mean, 1e-6, 1);
    expect_close(got.running_var, running_var, 1e-6, 1);

    const BatchNormChannels norm{got.mean.data(), got.rstd.data(), gamma.data(), beta.data()};
    const auto run = [&](TypeParam* out, std::int64_t begin, std::int64_t end) {
      batch_norm_apply(x.data(), s.residual ? residual.data() : nullptr, norm, s.channels, s.relu, out, begin, end);
    };
    const auto y = run_whole_and_split<TypeParam>(count, s.rows, run);
    expect_close(y, batch_norm_reference(s, xd, to_doubles(residual), to_doubles(gamma), to_doubles(beta)), 1e-5, 1);

    auto in_place = x;
    batch_norm_apply(in_place.data(), s.residual ? residual.data() : nullptr, norm, s.channels, s.relu, in_place.data(),
                     0, s.rows);
    EXPECT_EQ(to_doubles(in_place), to_doubles(y));
  }
}

TYPED_TEST(Norm, BatchGradients) {
  for (const BatchCase& s : batch_cases()) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.channels);
    const std::int64_t count = s.rows * s.channels;
    const auto x = random_tensor<TypeParam>(count, 1, -1, 3), residual = random_tensor<TypeParam>(count, 2);
    const auto dy = random_tensor<TypeParam>(count, 5);
    const auto gamma = random_tensor<float>(s.channels, 3), beta = random_tensor<float>(s.channels, 4);
    const Doubles xd = to_doubles(x), rd = to_doubles(residual), gd = to_doubles(gamma), bd = to_doubles(beta);
    const Doubles dyd = to_doubles(dy);
    const auto loss = [&](const Doubles& vx, const Doubles& vr, const Doubles& vg, const Doubles& vb) {
      return dot(batch_norm_reference(s, vx, vr, vg, vb), dyd);
    };
    const BatchStatistics statistics_of_x = batch_statistics(x, s.rows, s.channels, 0.1f);
    const BatchNormChannels norm{statistics_of_x.mean.data(), statistics_of_x.rstd.data(), gamma.data(), beta.data()};
    std::vector<TypeParam> y(index(count));
    batch_norm_apply(x.data(), s.residual ? residual.data() : nullptr, norm, s.channels, s.relu, y.data(), 0, s.rows);

    BatchNormMask mask = BatchNormMask::none;
    if (s.relu) mask = s.residual ? BatchNormMask::from_y : BatchNormMask::from_x;
    // With a residual dz is written, here in place over dy.
    Floats partials;
    std::vector<TypeParam> dz = dy;
    if (s.residual) {
      partials.resize(index(batch_norm_grad_partials(s.rows, s.channels)));
      dz = run_whole_and_split<TypeParam>(
          count, row_chunks(s.rows),
          [&](TypeParam* out, std::int64_t begin, std::int64_t end) {
            batch_norm_grad_reduce(x.data(), out, y.data(), norm, mask, s.rows, s.channels, out, partials.data(), begin,
                                   end);
          },
          &dy);
      expect_close(dz, differences(rd, [&](const Doubles& v) { return loss(xd, v, gd, bd); }), 1e-6, 1);
    }
    partials =
        run_whole_and_split<float>(batch_norm_grad_partials(s.rows, s.channels), row_chunks(s.rows),
                                   [&](float* out, std::int64_t begin, std::int64_t end) {
                                     batch_norm_grad_reduce<TypeParam>(x.data(), dy.data(), y.data(), norm, mask,
                                                                       s.rows, s.channels, nullptr, out, begin, end);
                                   });
    Floats dbeta(index(s.channels));
    const auto dgamma =
        run_whole_and_split<float>(s.channels, s.channels, [&](float* out, std::int64_t begin, std::int64_t end) {
          batch_norm_weight_grad(partials.data(), s.rows, s.channels, norm.rstd, out, dbeta.data(), begin, end);
        });
    const double scale = static_cast<double>(s.rows);
    expect_close(dgamma, differences(gd, [&](const Doubles& v) { return loss(xd, rd, v, bd); }), 2e-6, scale);
    expect_close(dbeta, differences(bd, [&](const Doubles& v) { return loss(xd, rd, gd, v); }), 2e-6, scale);

    const BatchNormMask left = s.residual ? BatchNormMask::none : mask;
    const auto dx =
        run_whole_and_split<TypeParam>(count, s.rows, [&](TypeParam* out, std::int64_t begin, std::int64_t end) {
          batch_norm_input_grad(x.data(), dz.data(), norm, dgamma.data(), dbeta.data(), left, s.rows, s.channels, out,
                                begin, end);
        });
    // With two rows the gradient all but vanishes, as the difference of numbers of the size of rstd.
    const double error = s.rows == 2 ? 1e-3 : 2e-5;
    expect_close(dx, differences(xd, [&](const Doubles& v) { return loss(v, rd, gd, bd); }), error, 1);
  }
}

TEST(BatchNorm, LargeMeanDoesNotSpoilTheVariance) {
  const std::int64_t rows = 5000, channels = 5;
  const auto x = random_tensor<float>(rows * channels, 1, 9999.0f, 10001.0f);
  const BatchStatistics got = batch_statistics(x, rows, channels, 0.1f);
  const Doubles xd = to_doubles(x);
  Doubles rstd;
  for (std::size_t c = 0; c < index(channels); ++c) {
    rstd.push_back(statistics(xd, [&](std::size_t i) { return i % index(channels) == c; }).rstd);
  }
  expect_close(got.rstd, rstd, 1e-6);
}

TEST(BatchNorm, EvaluationUsesRunningStatistics) {
  const std::int64_t rows = 9, channels = 7;
  const auto x = random_tensor<float>(rows * channels, 1);
  const auto mean = random_tensor<float>(channels, 2), var = random_tensor<float>(channels, 3, 0.1f, 2.0f);
  const auto gamma = random_tensor<float>(channels, 4), beta = random_tensor<float>(channels, 5);
  const auto rstd =
      run_whole_and_split<float>(channels, channels, [&](float* out, std::int64_t begin, std::int64_t end) {
        batch_norm_running_rstd(var.data(), kEpsilon, out, begin, end);
      });
  Floats y(x.size());
  batch_norm_apply<float>(x.data(), nullptr, {mean.data(), rstd.data(), gamma.data(), beta.data()}, channels, false,
                          y.data(), 0, rows);
  Doubles want;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % index(channels);
    const double scale = static_cast<double>(gamma[c]) / std::sqrt(static_cast<double>(var[c] + kEpsilon));
    want.push_back((static_cast<double>(x[i]) - static_cast<double>(mean[c])) * scale + static_cast<double>(beta[c]));
  }
  expect_close(y, want, 1e-6, 1);
}

// Channels do not mix: the last three alone must give the same.
void check_last_channels(std::int64_t rows, std::int64_t channels) {
  const auto x = random_tensor<float>(rows * channels, 1), dy = random_tensor<float>(rows * channels, 2);
  const auto gamma = random_tensor<float>(channels, 3), beta = random_tensor<float>(channels, 4);
  const BatchStatistics s = batch_statistics(x, rows, channels, 0.1f);
  const BatchNormChannels norm{s.mean.data(), s.rstd.data(), gamma.data(), beta.data()};
  Floats y(x.size()), partials(index(batch_norm_grad_partials(rows, channels))), dgamma(gamma.size()),
      dbeta(gamma.size());
  Floats dx(x.size());
  batch_norm_apply<float>(x.data(), nullptr, norm, channels, true, y.data(), 0, rows);
  batch_norm_grad_reduce<float>(x.data(), dy.data(), nullptr, norm, BatchNormMask::from_x, rows, channels, nullptr,
                                partials.data(), 0, row_chunks(rows));
  batch_norm_weight_grad(partials.data(), rows, channels, norm.rstd, dgamma.data(), dbeta.data(), 0, channels);
  batch_norm_input_grad(x.data(), dy.data(), norm, dgamma.data(), dbeta.data(), BatchNormMask::from_x, rows, channels,
                        dx.data(), 0, rows);
  const BatchCase last{rows, 3, false, true};
  const auto take = [&](const Floats& values) {
    Doubles taken;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % index(channels) >= index(channels - 3)) taken.push_back(static_cast<double>(values[i]));
    }
    return taken;
  };
  const Doubles xd = take(x), gd = take(gamma), bd = take(beta), dyd = take(dy);
  const auto loss = [&](const Doubles& v) { return dot(batch_norm_reference(last, v, {}, gd, bd), dyd); };
  const auto as_floats = [](const Doubles& values) { return Floats(values.begin(), values.end()); };
  expect_close(as_floats(take(y)), batch_norm_reference(last, xd, {}, gd, bd), 1e-5, 1);
  expect_close(as_floats(take(dx)), differences(xd, loss), 5e-5, 1);
}

TEST(BatchNorm, WideLayersGoThroughSeveralTiles) { check_last_channels(11, 2500); }
TEST(BatchNorm, MediumLayersGoThroughSeveralChunks) { check_last_channels(300, 100); }

// --- layer norm ---------------------------------------------------------------------------------------------------

Doubles layer_norm_reference(std::int64_t width, const Doubles& x, const Doubles& gamma, const Doubles& beta) {
  Doubles y(x.size());
  for (std::size_t row = 0; row < x.size() / index(width); ++row) {
    const Doubles values(x.begin() + static_cast<std::ptrdiff_t>(row * index(width)),
                         x.begin() + static_cast<std::ptrdiff_t>((row + 1) * index(width)));
    const Reference r = statistics(values, [](std::size_t) { return true; });
    for (std::size_t c = 0; c < index(width); ++c) {
      y[row * index(width) + c] = (values[c] - r.mean) * r.rstd * gamma[c] + (beta.empty() ? 0 : beta[c]);
    }
  }
  return y;
}

struct LayerCase {
  std::int64_t rows, width;
  bool beta;
};

TYPED_TEST(Norm, Layer) {
  for (const LayerCase& s :
       {LayerCase{5, 64, true}, {7, 17, false}, {300, 3, true}, {2, 33, true}, {3, 130, false}, {1, 7, true}}) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.width);
    const std::int64_t count = s.rows * s.width;
    const auto x = random_tensor<TypeParam>(count, 1, -1, 3);
    const auto dy = random_tensor<TypeParam>(count, 5), add = random_tensor<TypeParam>(count, 6);
    const auto gamma = random_tensor<float>(s.width, 3), beta = random_tensor<float>(s.width, 4);
    const float* beta_data = s.beta ? beta.data() : nullptr;
    const Doubles xd = to_doubles(x), gd = to_doubles(gamma), bd = s.beta ? to_doubles(beta) : Doubles{};
    const Doubles dyd = to_doubles(dy);

    Floats mean(index(s.rows)), rstd(index(s.rows));
    const auto y =
        run_whole_and_split<TypeParam>(count, s.rows, [&](TypeParam* out, std::int64_t begin, std::int64_t end) {
          layer_norm_forward<TypeParam>(x.data(), nullptr, gamma.data(), beta_data, s.width, kEpsilon, out, nullptr,
                                        mean.data(), rstd.data(), begin, end);
        });
    expect_close(y, layer_norm_reference(s.width, xd, gd, bd), 1e-5, 1);

    const auto loss = [&](const Doubles& vx, const Doubles& vg, const Doubles& vb) {
      return dot(layer_norm_reference(s.width, vx, vg, vb), dyd);
    };
    const Doubles want_dx = differences(xd, [&](const Doubles& v) { return loss(v, gd, bd); });
    for (const bool with_add : {false, true}) {
      const auto dx =
          run_whole_and_split<TypeParam>(count, s.rows, [&](TypeParam* out, std::int64_t begin, std::int64_t end) {
            layer_norm_input_grad(x.data(), dy.data(), with_add ? add.data() : nullptr, gamma.data(), mean.data(),
                                  rstd.data(), s.width, out, begin, end);
          });
      Doubles want = want_dx;
      for (std::size_t i = 0; with_add && i < want.size(); ++i) want[i] += static_cast<double>(to_float(add[i]));
      expect_close(dx, want, 5e-5, 1);
    }

    const auto partials =
        run_whole_and_split<float>(layer_norm_partials(s.rows, s.width), row_chunks(s.rows),
                                   [&](float* out, std::int64_t begin, std::int64_t end) {
                                     layer_norm_weight_grad_reduce(x.data(), dy.data(), mean.data(), rstd.data(),
                                                                   s.rows, s.width, out, begin, end);
                                   });
    Floats dbeta(index(s.width));
    const auto dgamma =
        run_whole_and_split<float>(s.width, s.width, [&](float* out, std::int64_t begin, std::int64_t end) {
          layer_norm_weight_grad(partials.data(), s.rows, s.width, out, s.beta ? dbeta.data() : nullptr, begin, end);
        });
    const double scale = static_cast<double>(s.rows);
    expect_close(dgamma, differences(gd, [&](const Doubles& v) { return loss(xd, v, bd); }), 5e-6, scale);
    if (s.beta) expect_close(dbeta, differences(bd, [&](const Doubles& v) { return loss(xd, gd, v); }), 5e-6, scale);
  }
}

// The sum is rounded before it is normalised, and may lie over either of its terms.
TYPED_TEST(Norm, LayerOfASum) {
  for (const LayerCase& s : {LayerCase{5, 64, true}, {7, 17, false}, {30, 3, true}, {3, 130, true}}) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.width);
    const std::int64_t count = s.rows * s.width;
    const auto x = random_tensor<TypeParam>(count, 1, -1, 3), residual = random_tensor<TypeParam>(count, 2);
    const auto gamma = random_tensor<float>(s.width, 3), beta = random_tensor<float>(s.width, 4);
    const float* beta_data = s.beta ? beta.data() : nullptr;
    std::vector<TypeParam> want_sum;
    for (std::size_t i = 0; i < x.size(); ++i) {
      want_sum.push_back(from_float<TypeParam>(to_float(x[i]) + to_float(residual[i])));
    }
    Floats mean(index(s.rows)), rstd(index(s.rows)), want_mean(index(s.rows)), want_rstd(index(s.rows));
    std::vector<TypeParam> want(x.size()), y(x.size());
    layer_norm_forward<TypeParam>(want_sum.data(), nullptr, gamma.data(), beta_data, s.width, kEpsilon, want.data(),
                                  nullptr, want_mean.data(), want_rstd.data(), 0, s.rows);
    expect_close(
        want,
        layer_norm_reference(s.width, to_doubles(want_sum), to_doubles(gamma), s.beta ? to_doubles(beta) : Doubles{}),
        1e-5, 1);

    const auto run = [&](const TypeParam* a, const TypeParam* b, TypeParam* sum, TypeParam* out, std::int64_t begin,
                         std::int64_t end) {
      layer_norm_forward(a, b, gamma.data(), beta_data, s.width, kEpsilon, out, sum, mean.data(), rstd.data(), begin,
                         end);
    };
    const auto sum =
        run_whole_and_split<TypeParam>(count, s.rows, [&](TypeParam* out, std::int64_t begin, std::int64_t end) {
          run(x.data(), residual.data(), out, y.data(), begin, end);
        });
    EXPECT_EQ(to_doubles(sum), to_doubles(want_sum));
    EXPECT_EQ(to_doubles(y), to_doubles(want));
    EXPECT_EQ(mean, want_mean);
    EXPECT_EQ(rstd, want_rstd);

    std::vector<TypeParam> over_x = x, over_residual = residual, y_over_x = x;
    run(over_x.data(), residual.data(), over_x.data(), y.data(), 0, s.rows);
    EXPECT_EQ(to_doubles(over_x), to_doubles(want_sum));
    EXPECT_EQ(to_doubles(y), to_doubles(want));
    run(y_over_x.data(), over_residual.data(), over_residual.data(), y_over_x.data(), 0, s.rows);
    EXPECT_EQ(to_doubles(over_residual), to_doubles(want_sum));
    EXPECT_EQ(to_doubles(y_over_x), to_doubles(want));
  }
}

// --- group norm ---------------------------------------------------------------------------------------------------

Doubles group_norm_reference(const GroupNormShape& s, const Doubles& x, const Doubles& gamma, const Doubles& beta) {
  Doubles y(x.size());
  const std::size_t channels = index(s.channels), per_group = index(s.channels / s.groups);
  const std::size_t per_image = index(s.pixels) * channels;
  for (std::size_t n = 0; n < index(s.batch); ++n) {
    const Doubles image(x.begin() + static_cast<std::ptrdiff_t>(n * per_image),
                        x.begin() + static_cast<std::ptrdiff_t>((n + 1) * per_image));
    for (std::size_t g = 0; g < index(s.groups); ++g) {
      const auto belongs = [&](std::size_t i) { return i % channels / per_group == g; };
      const Reference r = statistics(image, belongs);
      for (std::size_t i = 0; i < per_image; ++i) {
        if (!belongs(i)) continue;
        y[n * per_image + i] = (image[i] - r.mean) * r.rstd * gamma[i % channels] + beta[i % channels];
      }
    }
  }
  return y;
}

TYPED_TEST(Norm, Group) {
  for (const GroupNormShape& s : {GroupNormShape{2, 9, 16, 4},
                                  {3, 5, 17, 1},
                                  {1, 4, 7, 7},
                                  {2, 1, 6, 3},
                                  GroupNormShape{9, 6, 3, 1},
                                  {1, 2, 34, 2}}) {
    SCOPED_TRACE(testing::Message() << s.batch << " x " << s.pixels << " x " << s.channels << " / " << s.groups);
    const std::int64_t count = s.batch * s.pixels * s.channels;
    const auto x = random_tensor<TypeParam>(count, 1, -1, 3), dy = random_tensor<TypeParam>(count, 5);
    const auto gamma = random_tensor<float>(s.channels, 3), beta = random_tensor<float>(s.channels, 4);
    const Doubles xd = to_doubles(x), gd = to_doubles(gamma), bd = to_doubles(beta), dyd = to_doubles(dy);

    Floats mean(index(s.batch * s.groups)), rstd(mean.size());
    const auto y =
        run_whole_and_split<TypeParam>(count, s.batch, [&](TypeParam* out, std::int64_t begin, std::int64_t end) {
          group_norm_forward(s, x.data(), gamma.data(), beta.data(), kEpsilon, out, mean.data(), rstd.data(), begin,
                             end);
        });
    // A group of one element has no spread: (x - mean) is exactly zero there.
    expect_close(y, group_norm_reference(s, xd, gd, bd), 2e-5, 1);

    const auto loss = [&](const Doubles& vx, const Doubles& vg, const Doubles& vb) {
      return dot(group_norm_reference(s, vx, vg, vb), dyd);
    };
    Floats sums(index(s.batch * s.groups * 2));
    const auto dx =
        run_whole_and_split<TypeParam>(count, s.batch, [&](TypeParam* out, std::int64_t begin, std::int64_t end) {
          group_norm_input_grad(s, x.data(), dy.data(), gamma.data(), mean.data(), rstd.data(), sums.data(), out, begin,
                                end);
        });
    const double error = s.pixels * s.channels / s.groups == 2 ? 1e-3 : 5e-5;
    expect_close(dx, differences(xd, [&](const Doubles& v) { return loss(v, gd, bd); }), error, 1);

    const auto partials = run_whole_and_split<float>(
        s.batch * 2 * s.channels, s.batch, [&](float* out, std::int64_t begin, std::int64_t end) {
          group_norm_weight_grad_reduce(s, x.data(), dy.data(), mean.data(), rstd.data(), out, begin, end);
        });
    Floats dbeta(index(s.channels));
    const auto dgamma =
        run_whole_and_split<float>(s.channels, s.channels, [&](float* out, std::int64_t begin, std::int64_t end) {
          group_norm_weight_grad(s, partials.data(), out, dbeta.data(), begin, end);
        });
    const double scale = static_cast<double>(s.batch * s.pixels);
    expect_close(dgamma, differences(gd, [&](const Doubles& v) { return loss(xd, v, bd); }), 5e-6, scale);
    expect_close(dbeta, differences(bd, [&](const Doubles& v) { return loss(xd, gd, v); }), 5e-6, scale);
  }
}

// Where one of the two parameters is not trained, the other one's gradient is as with both.
TEST(NormKernels, EachParameterAlone) {
  const std::int64_t rows = 300, width = 19;
  const GroupNormShape group{5, 4, width, 1};
  const auto partials = random_tensor<float>(64 * 2 * width, 1), rstd = random_tensor<float>(width, 2);
  const auto check = [&](const auto& combine) {
    Floats dgamma(index(width)), dbeta(index(width)), dgamma_alone(index(width)), dbeta_alone(index(width));
    combine(dgamma.data(), dbeta.data());
    combine(dgamma_alone.data(), static_cast<float*>(nullptr));
    combine(static_cast<float*>(nullptr), dbeta_alone.data());
    EXPECT_EQ(dgamma, dgamma_alone);
    EXPECT_EQ(dbeta, dbeta_alone);
    EXPECT_NE(dgamma, Floats(index(width)));
    EXPECT_NE(dbeta, Floats(index(width)));
  };
  check([&](float* dgamma, float* dbeta) {
    batch_norm_weight_grad(partials.data(), rows, width, rstd.data(), dgamma, dbeta, 0, width);
  });
  check([&](float* dgamma, float* dbeta) {
    layer_norm_weight_grad(partials.data(), rows, width, dgamma, dbeta, 0, width);
  });
  check([&](float* dgamma, float* dbeta) { group_norm_weight_grad(group, partials.data(), dgamma, dbeta, 0, width); });
}

TEST(GroupNorm, GroupsAcrossTilesAndLargeMeans) {
  const GroupNormShape s{1, 3, 2500, 2};  // a group of 1250 channels does not fit one tile
  const auto x = random_tensor<float>(s.pixels * s.channels, 1, 999.0f, 1001.0f);
  const auto gamma = random_tensor<float>(s.channels, 3), beta = random_tensor<float>(s.channels, 4);
  Floats y(x.size()), mean(2), rstd(2);
  group_norm_forward(s, x.data(), gamma.data(), beta.data(), kEpsilon, y.data(), mean.data(), rstd.data(), 0, 1);
  expect_close(y, group_norm_reference(s, to_doubles(x), to_doubles(gamma), to_doubles(beta)), 2e-4, 1);
}

}  // namespace
}  // namespace overtake::kernels
