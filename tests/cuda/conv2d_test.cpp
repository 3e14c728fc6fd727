// Convolutions through cuDNN against plain loops in double. The plans chosen and their times are printed.

#include "kernels/cuda/conv2d.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <stdexcept>

#include "cuda/against_cpu.h"
#include "cuda/device_array.h"

namespace overtake::cuda {
namespace {

using kernels::ConvShape;

constexpr std::size_t kWorkspace = 256u << 20;
// Elements of a result that are compared, evenly spread, are limited in number and in the terms of all their sums.
constexpr std::int64_t kMostChecked = 20'000, kMostTerms = 100'000'000;

template <class T>
constexpr double kBoundOf = sizeof(T) == 4 ? 1e-4 : 1e-2;

struct Case {
  const char* name;
  ConvShape shape;
};

// Sizes of the result follow from the rest.
ConvShape sized(ConvShape s) {
  const auto out = [](std::int64_t in, std::int64_t pads, std::int64_t kernel, std::int64_t dilation,
                      std::int64_t stride) { return (in + pads - dilation * (kernel - 1) - 1) / stride + 1; };
  s.out_h = out(s.in_h, s.pad_top + s.pad_bottom, s.kernel_h, s.dilation_h, s.stride_h);
  s.out_w = out(s.in_w, s.pad_left + s.pad_right, s.kernel_w, s.dilation_w, s.stride_w);
  return s;
}

ConvShape square(std::int64_t batch, std::int64_t in, std::int64_t pixels, std::int64_t out, std::int64_t kernel,
                 std::int64_t stride, std::int64_t pad, std::int64_t groups = 1) {
  ConvShape s;
  s.batch = batch, s.in_channels = in, s.out_channels = out, s.groups = groups;
  s.in_h = s.in_w = pixels;
  s.kernel_h = s.kernel_w = kernel;
  s.stride_h = s.stride_w = stride;
  s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = pad;
  return sized(s);
}

// One element at a time of what a task computes.
template <class T>
class Reference {
 public:
  // x: [batch][in_h][in_w][in_channels], w: [out_channels][kernel_h][kernel_w][in_channels / groups],
  // dy: [batch][out_h][out_w][out_channels].
  Reference(const ConvShape& shape, const std::vector<T>& x, const std::vector<T>& w, const std::vector<T>& dy)
      : s(shape), x_(x), w_(w), dy_(dy) {}

  double y(std::int64_t at) const {
    const std::int64_t o = at % s.out_channels, q = at / s.out_channels % s.out_w;
    const std::int64_t p = at / s.out_channels / s.out_w % s.out_h, n = at / s.out_channels / s.out_w / s.out_h;
    double sum = 0;
    for (std::int64_t r = 0; r < s.kernel_h; ++r)
      for (std::int64_t t = 0; t < s.kernel_w; ++t)
        for (std::int64_t i = 0; i < s.in_channels / s.groups; ++i)
          sum += x(n, row(p, r), column(q, t), channel(o, i)) * w(o, r, t, i);
    return sum;
  }

  double dx(std::int64_t at) const {
    const std::int64_t c = at % s.in_channels, v = at / s.in_channels % s.in_w;
    const std::int64_t u = at / s.in_channels / s.in_w % s.in_h, n = at / s.in_channels / s.in_w / s.in_h;
    const std::int64_t per_group = s.in_channels / s.groups, outs = s.out_channels / s.groups;
    double sum = 0;
    for (std::int64_t r = 0; r < s.kernel_h; ++r)
      for (std::int64_t t = 0; t < s.kernel_w; ++t) {
        const std::int64_t p = u + s.pad_top - r * s.dilation_h, q = v + s.pad_left - t * s.dilation_w;
        if (p < 0 || q < 0 || p % s.stride_h != 0 || q % s.stride_w != 0) continue;
        if (p / s.stride_h >= s.out_h || q / s.stride_w >= s.out_w) continue;
        for (std::int64_t o = c / per_group * outs; o < (c / per_group + 1) * outs; ++o)
          sum += dy(n, p / s.stride_h, q / s.stride_w, o) * w(o, r, t, c % per_group);
      }
    return sum;
  }

  double dw(std::int64_t at) const {
    const std::int64_t per_group = s.in_channels / s.groups;
    const std::int64_t i = at % per_group, t = at / per_group % s.kernel_w;
    const std::int64_t r = at / per_group / s.kernel_w % s.kernel_h, o = at / per_group / s.kernel_w / s.kernel_h;
    double sum = 0;
    for (std::int64_t n = 0; n < s.batch; ++n)
      for (std::int64_t p = 0; p < s.out_h; ++p)
        for (std::int64_t q = 0; q < s.out_w; ++q) sum += x(n, row(p, r), column(q, t), channel(o, i)) * dy(n, p, q, o);
    return sum;
  }

 private:
  std::int64_t row(std::int64_t p, std::int64_t r) const { return p * s.stride_h - s.pad_top + r * s.dilation_h; }
  std::int64_t column(std::int64_t q, std::int64_t t) const { return q * s.stride_w - s.pad_left + t * s.dilation_w; }
  std::int64_t channel(std::int64_t o, std::int64_t i) const {
    return o / (s.out_channels / s.groups) * (s.in_channels / s.groups) + i;
  }
  static double value(const std::vector<T>& all, std::int64_t at) {
    return static_cast<double>(to_float(all[size(at)]));
  }
  double x(std::int64_t n, std::int64_t u, std::int64_t v, std::int64_t c) const {
    if (u < 0 || v < 0 || u >= s.in_h || v >= s.in_w) return 0;
    return value(x_, ((n * s.in_h + u) * s.in_w + v) * s.in_channels + c);
  }
  double w(std::int64_t o, std::int64_t r, std::int64_t t, std::int64_t i) const {
    return value(w_, ((o * s.kernel_h + r) * s.kernel_w + t) * (s.in_channels / s.groups) + i);
  }
  double dy(std::int64_t n, std::int64_t p, std::int64_t q, std::int64_t o) const {
    return value(dy_, ((n * s.out_h + p) * s.out_w + q) * s.out_channels + o);
  }

  const ConvShape s;
  const std::vector<T>&x_, &w_, &dy_;
};

// Compares got[] with want(index), a sum of so many terms.
template <class T, class Want>
void expect_near(const std::vector<T>& got, const Want& want, std::int64_t terms, double bound,
                 const std::string& what) {
  const auto count = static_cast<std::int64_t>(got.size());
  const std::int64_t places = std::clamp<std::int64_t>(kMostTerms / terms, 1, kMostChecked);
  const std::int64_t step = std::max<std::int64_t>(1, count / places) | 1;  // odd: not always the same channel
  std::vector<double> right;
  double largest = 0;
  for (std::int64_t i = 0; i < count; i += step) right.push_back(want(i));
  for (const double value : right) largest = std::max(largest, std::fabs(value));
  for (std::size_t j = 0; j < right.size(); ++j) {
    const double value = static_cast<double>(to_float(got[j * size(step)]));
    // NaN compares false: an element that was not written fails here.
    ASSERT_TRUE(std::fabs(value - right[j]) <= bound * largest)
        << what << " [" << j * size(step) << "]: " << value << ", should be " << right[j] << ", largest " << largest;
  }
}

// The convolution, or nothing if cuDNN has no plan; both are printed.
std::optional<Conv> ready(const ConvKind& kind, Tuning& tuning, const std::string& what) {
  try {
    Conv conv(kind, tuning, kWorkspace);
    if (conv.microseconds() > 0)
      std::printf("  %-44s %8.2f us  %s, workspace %zu\n", what.c_str(), conv.microseconds(), conv.plan_name().c_str(),
                  conv.workspace_bytes());
    return conv;
  } catch (const std::runtime_error& error) {
    std::printf("  %-44s NO PLAN: %s\n", what.c_str(), error.what());
    return std::nullopt;
  }
}

// The result of one run into poisoned memory.
template <class T>
std::vector<T> result(const Conv& conv, std::int64_t count, const void* a, const void* b, const float* bias) {
  DeviceArray<T> out(size(count));
  DeviceArray<std::uint8_t> workspace(conv.workspace_bytes());
  conv.run(nullptr, a, b, bias, out.data(), workspace.data());
  return out.download();
}

// What one shape needs, on both sides.
template <class T>
struct Problem {
  explicit Problem(ConvShape shape)
      : s(shape),
        x(random_values<T>(s.batch * s.in_h * s.in_w * s.in_channels, 1)),
        w(random_values<T>(s.out_channels * s.kernel_h * s.kernel_w * (s.in_channels / s.groups), 2)),
        dy(random_values<T>(s.batch * s.out_h * s.out_w * s.out_channels, 3)),
        bias(random_values<float>(s.out_channels, 4)),
        gpu_x(x),
        gpu_w(w),
        gpu_dy(dy),
        gpu_bias(bias),
        reference(s, x, w, dy) {}

  ConvShape s;
  std::vector<T> x, w, dy;
  std::vector<float> bias;
  DeviceArray<T> gpu_x, gpu_w, gpu_dy;
  DeviceArray<float> gpu_bias;
  Reference<T> reference;
};

std::int64_t terms(const ConvKind& kind) {
  const ConvShape& s = kind.shape;
  const std::int64_t kernel = s.kernel_h * s.kernel_w;
  if (kind.task == ConvTask::weight_grad) return s.batch * s.out_h * s.out_w;
  return kernel * (kind.task == ConvTask::forward ? s.in_channels : s.out_channels) / s.groups;
}

// Runs a kind twice, the second time from the choice that was kept; false if there is no plan.
template <class T, class Want>
bool check(const Problem<T>& problem, const ConvKind& kind, Tuning& tuning, std::int64_t count, const Want& want,
           double bound, const std::string& what) {
  const std::optional<Conv> conv = ready(kind, tuning, what);
  if (!conv) return false;
  const void* a = kind.task == ConvTask::input_grad ? problem.gpu_dy.data() : problem.gpu_x.data();
  const void* b = kind.task == ConvTask::weight_grad ? problem.gpu_dy.data() : problem.gpu_w.data();
  const float* bias = kind.bias ? problem.gpu_bias.data() : nullptr;
  const std::vector<T> first = result<T>(*conv, count, a, b, bias);
  expect_near(first, want, terms(kind), bound, what);
  expect_same_bytes(first, result<T>(*conv, count, a, b, bias), what);

  const Conv kept(kind, tuning, kWorkspace);
  EXPECT_EQ(kept.plan_name(), conv->plan_name()) << what;
  EXPECT_EQ(kept.microseconds(), 0) << what;
  EXPECT_EQ(kept.workspace_bytes(), conv->workspace_bytes()) << what;
  expect_same_bytes(first, result<T>(kept, count, a, b, bias), what + ", from the kept choice");
  return true;
}

template <class T>
void check_three_tasks(ConvShape shape, bool tf32, const std::string& name) {
  shape.bf16 = sizeof(T) == 2;
  const Problem<T> p(shape);
  const Reference<T>& right = p.reference;
  Tuning tuning({}, {}, [](const std::string& text) { std::printf("  note: %s\n", text.c_str()); });
  const double bound = tf32 ? 3e-3 : kBoundOf<T>;
  ConvKind kind{.shape = shape, .tf32 = tf32};
  const auto elements = [](const auto& values) { return static_cast<std::int64_t>(values.size()); };
  const std::string type = name + (shape.bf16 ? " bf16 " : tf32 ? " tf32 " : " f32 ");

  EXPECT_TRUE(check(
      p, kind, tuning, elements(p.dy), [&](std::int64_t i) { return right.y(i); }, bound, type + "forward"));
  kind.task = ConvTask::input_grad;
  EXPECT_TRUE(check(
      p, kind, tuning, elements(p.x), [&](std::int64_t i) { return right.dx(i); }, bound, type + "input_grad"));
  kind.task = ConvTask::weight_grad;
  EXPECT_TRUE(check(
      p, kind, tuning, elements(p.w), [&](std::int64_t i) { return right.dw(i); }, bound, type + "weight_grad"));
}

class Convs : public testing::TestWithParam<Case> {};

TEST_P(Convs, AreRightInBf16) {
  OVERTAKE_NEEDS_GPU();
  check_three_tasks<bf16>(GetParam().shape, false, GetParam().name);
}

TEST_P(Convs, AreRightInFloat) {
  OVERTAKE_NEEDS_GPU();
  check_three_tasks<float>(GetParam().shape, false, GetParam().name);
}

TEST_P(Convs, AreRightInTf32) {
  OVERTAKE_NEEDS_GPU();
  check_three_tasks<float>(GetParam().shape, true, GetParam().name);
}

// With the bias added in the same kernel.
template <class T>
void check_bias(ConvShape shape, const std::string& name) {
  shape.bf16 = sizeof(T) == 2;
  const Problem<T> p(shape);
  Tuning tuning({}, {}, [](const std::string& text) { std::printf("  note: %s\n", text.c_str()); });
  const auto want = [&](std::int64_t i) {
    return p.reference.y(i) + static_cast<double>(p.bias[size(i % shape.out_channels)]);
  };
  EXPECT_TRUE(check(p, {.shape = shape, .bias = true}, tuning, static_cast<std::int64_t>(p.dy.size()), want,
                    kBoundOf<T>, name + (shape.bf16 ? " bf16 " : " f32 ") + "forward bias"));
}

class ConvBias : public testing::TestWithParam<Case> {};

TEST_P(ConvBias, AreRightInBf16) {
  OVERTAKE_NEEDS_GPU();
  check_bias<bf16>(GetParam().shape, GetParam().name);
}

TEST_P(ConvBias, AreRightInFloat) {
  OVERTAKE_NEEDS_GPU();
  check_bias<float>(GetParam().shape, GetParam().name);
}

TEST(Conv, RunsInACapture) {
  OVERTAKE_NEEDS_GPU();
  ConvShape shape = square(2, 16, 12, 24, 3, 1, 1);
  shape.bf16 = true;
  const Problem<bf16> p(shape);
  Tuning tuning({}, {.measure = false}, nullptr);
  const Conv conv({.shape = shape}, tuning, kWorkspace);
  const auto count = static_cast<std::int64_t>(p.dy.size());
  const std::vector<bf16> plain = result<bf16>(conv, count, p.gpu_x.data(), p.gpu_w.data(), nullptr);

  DeviceArray<bf16> y(size(count));
  DeviceArray<std::uint8_t> workspace(conv.workspace_bytes());
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  conv.run(stream, p.gpu_x.data(), p.gpu_w.data(), nullptr, y.data(), workspace.data());
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  expect_same_bytes(y.download(), plain, "captured");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST(Conv, RefusesABiasOfGradients) {
  OVERTAKE_NEEDS_GPU();
  Tuning tuning({}, {}, nullptr);
  const ConvShape shape = square(1, 8, 8, 8, 3, 1, 1);
  EXPECT_THROW(Conv({.shape = shape, .task = ConvTask::weight_grad, .bias = true}, tuning, kWorkspace),
               std::runtime_error);
}

ConvShape dilated() {
  ConvShape s = square(2, 16, 17, 24, 3, 1, 2);
  s.dilation_h = s.dilation_w = 2;
  return sized(s);
}

// As frameworks with "same" padding do at stride 2.
ConvShape asymmetric() {
  ConvShape s = square(2, 16, 16, 24, 3, 2, 0);
  s.pad_bottom = s.pad_right = 1;
  return sized(s);
}

ConvShape oblong() {
  ConvShape s = square(3, 24, 11, 40, 1, 1, 0);
  s.in_w = 19;
  s.kernel_h = 5, s.kernel_w = 2;
  s.stride_h = 3;
  s.pad_top = 2, s.pad_bottom = 1;
  return sized(s);
}

constexpr auto kName = [](const auto& c) { return std::string(c.param.name); };

INSTANTIATE_TEST_SUITE_P(
    Shapes, Convs,
    testing::Values(Case{"k1", square(2, 32, 14, 64, 1, 1, 0)}, Case{"k1_stride2", square(2, 32, 15, 64, 1, 2, 0)},
                    Case{"k3", square(2, 64, 14, 64, 3, 1, 1)}, Case{"k3_stride2", square(2, 32, 15, 48, 3, 2, 1)},
                    Case{"k7_stem", square(2, 3, 33, 32, 7, 2, 3)}, Case{"dilated", dilated()},
                    Case{"asymmetric", asymmetric()}, Case{"oblong", oblong()},
                    Case{"groups", square(2, 32, 14, 64, 3, 1, 1, 4)},
                    Case{"depthwise", square(2, 32, 14, 32, 3, 1, 1, 32)}, Case{"odd", square(3, 5, 9, 7, 3, 1, 1)},
                    Case{"patches16", square(4, 8, 64, 96, 16, 16, 0)}, Case{"patches4", square(2, 8, 16, 24, 4, 4, 0)},
                    Case{"patches2", square(2, 16, 16, 24, 2, 2, 0)}),
    kName);

// Of ResNet-50 at batch 32; checked at some places only.
INSTANTIATE_TEST_SUITE_P(ResNet, Convs,
                         testing::Values(Case{"stem", square(32, 3, 224, 64, 7, 2, 3)},
                                         Case{"c56_k3", square(32, 64, 56, 64, 3, 1, 1)},
                                         Case{"c56_k1", square(32, 64, 56, 256, 1, 1, 0)},
                                         Case{"c28_k3_stride2", square(32, 128, 56, 128, 3, 2, 1)},
                                         Case{"c14_k1", square(32, 1024, 14, 256, 1, 1, 0)},
                                         Case{"c7_k3", square(32, 512, 7, 512, 3, 1, 1)}),
                         kName);

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvBias,
    testing::Values(Case{"k1", square(2, 32, 14, 64, 1, 1, 0)}, Case{"k3", square(2, 64, 14, 64, 3, 1, 1)},
                    Case{"k7_stem", square(2, 3, 33, 32, 7, 2, 3)}, Case{"groups", square(2, 32, 14, 64, 3, 1, 1, 4)},
                    Case{"odd", square(3, 5, 9, 7, 3, 1, 1)}, Case{"c56_k3", square(32, 64, 56, 64, 3, 1, 1)},
                    Case{"patches16", square(4, 8, 64, 96, 16, 16, 0)}),
    kName);

}  // namespace
}  // namespace overtake::cuda
