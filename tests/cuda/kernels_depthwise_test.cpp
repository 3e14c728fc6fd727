#include "cuda/against_cpu.h"
#include "kernels/cuda/depthwise.h"

namespace overtake {
namespace {

using kernels::ConvShape;

struct Case {
  std::int64_t batch, channels, in_h, in_w, kernel_h, kernel_w, stride_h, stride_w;
  std::int64_t pad_top, pad_left, pad_bottom, pad_right;
  std::int64_t dilation = 1;

  ConvShape shape() const {
    ConvShape s;
    s.batch = batch, s.in_channels = s.out_channels = s.groups = channels;
    s.in_h = in_h, s.in_w = in_w, s.kernel_h = kernel_h, s.kernel_w = kernel_w;
    s.stride_h = stride_h, s.stride_w = stride_w, s.dilation_h = s.dilation_w = dilation;
    s.pad_top = pad_top, s.pad_left = pad_left, s.pad_bottom = pad_bottom, s.pad_right = pad_right;
    s.out_h = (in_h + pad_top + pad_bottom - (kernel_h - 1) * dilation - 1) / stride_h + 1;
    s.out_w = (in_w + pad_left + pad_right - (kernel_w - 1) * dilation - 1) / stride_w + 1;
    return s;
  }
};

const std::vector<Case> kCases = {
    // Square windows with constant bounds: odd and even images, all kernel sizes and strides.
    {2, 16, 13, 11, 3, 3, 1, 1, 1, 1, 1, 1},
    {2, 72, 14, 14, 3, 3, 2, 2, 1, 1, 1, 1},
    {1, 120, 9, 10, 5, 5, 1, 1, 2, 2, 2, 2},
    {2, 24, 15, 12, 5, 5, 2, 2, 2, 2, 2, 2},
    {1, 32, 10, 9, 7, 7, 1, 1, 3, 3, 3, 3},
    {2, 12, 13, 16, 7, 7, 2, 2, 3, 3, 3, 3},
    {3, 200, 7, 7, 3, 3, 1, 1, 1, 1, 1, 1},
    {8, 960, 7, 7, 5, 5, 1, 1, 2, 2, 2, 2},
    {4, 16, 56, 56, 3, 3, 1, 1, 1, 1, 1, 1},
    {9, 64, 28, 28, 3, 3, 2, 2, 1, 1, 1, 1},
    {3, 72, 21, 21, 5, 5, 2, 2, 2, 2, 2, 2},
    {3, 120, 14, 14, 5, 5, 1, 1, 2, 2, 2, 2},
    {2, 184, 14, 13, 7, 7, 1, 1, 3, 3, 3, 3},
    {3, 116, 14, 14, 3, 3, 1, 1, 1, 1, 1, 1},
    {2, 58, 7, 7, 3, 3, 1, 1, 1, 1, 1, 1},
    {2, 8, 7, 5, 3, 3, 1, 1, 1, 2, 1, 2},
    // Uneven and missing padding, rows of x that no window reaches, padding as wide as the window.
    {2, 8, 12, 12, 3, 3, 2, 2, 0, 0, 1, 1},
    {2, 16, 11, 13, 5, 5, 2, 2, 1, 2, 2, 1},
    {1, 8, 10, 8, 3, 3, 2, 2, 0, 0, 0, 0},
    {1, 4, 6, 5, 3, 3, 1, 1, 3, 3, 3, 3},
    {1, 4, 5, 6, 3, 3, 2, 2, 3, 3, 2, 2},
    {1, 4, 3, 3, 7, 7, 1, 1, 3, 3, 3, 3},
    {1, 4, 3, 3, 3, 3, 1, 1, 0, 0, 0, 0},
    // Channels that are no whole packs.
    {2, 6, 9, 9, 3, 3, 1, 1, 1, 1, 1, 1},
    {2, 6, 9, 9, 5, 5, 2, 2, 2, 2, 2, 2},
    {2, 2, 7, 7, 5, 5, 1, 1, 2, 2, 2, 2},
    {2, 10, 9, 8, 7, 7, 2, 2, 3, 3, 3, 3},
    {2, 5, 8, 9, 7, 7, 1, 1, 3, 3, 3, 3},
    {1, 333, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1},
    // Any window: not square, dilated, other strides, other sizes.
    {2, 16, 9, 10, 3, 5, 1, 1, 1, 2, 1, 2},
    {2, 16, 12, 12, 3, 3, 1, 1, 2, 2, 2, 2, 2},
    {1, 24, 14, 13, 5, 5, 2, 2, 4, 4, 4, 4, 2},
    {2, 8, 13, 14, 3, 3, 3, 3, 1, 1, 1, 1},
    {2, 8, 13, 14, 3, 3, 1, 2, 1, 1, 1, 1},
    {1, 16, 10, 10, 4, 4, 2, 2, 1, 1, 1, 1},
    {1, 40, 6, 6, 1, 1, 1, 1, 0, 0, 0, 0},
    {1, 8, 12, 12, 9, 9, 1, 1, 4, 4, 4, 4},
};

// Calls visit(y index, x index, weight index) for every product of the convolution.
template <class Visit>
void for_each_product(const ConvShape& s, const Visit& visit) {
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t p = 0; p < s.out_h; ++p) {
      for (std::int64_t q = 0; q < s.out_w; ++q) {
        for (std::int64_t r = 0; r < s.kernel_h; ++r) {
          for (std::int64_t t = 0; t < s.kernel_w; ++t) {
            const std::int64_t i = p * s.stride_h - s.pad_top + r * s.dilation_h;
            const std::int64_t j = q * s.stride_w - s.pad_left + t * s.dilation_w;
            if (i < 0 || i >= s.in_h || j < 0 || j >= s.in_w) continue;
            for (std::int64_t c = 0; c < s.groups; ++c) {
              visit(size(((n * s.out_h + p) * s.out_w + q) * s.groups + c),
                    size(((n * s.in_h + i) * s.in_w + j) * s.groups + c), size((c * s.kernel_h + r) * s.kernel_w + t));
            }
          }
        }
      }
    }
  }
}

template <class T>
std::vector<T> rounded(const std::vector<double>& values) {
  std::vector<T> result;
  result.reserve(values.size());
  for (const double value : values) result.push_back(from_float<T>(static_cast<float>(value)));
  return result;
}

template <class T>
class CudaDepthwise : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaDepthwise, Types);

TYPED_TEST(CudaDepthwise, IsTheDefinition) {
  OVERTAKE_NEEDS_GPU();
  using T = TypeParam;
  for (const Case& c : kCases) {
    const ConvShape s = c.shape();
    const std::string what = kernels::to_string(s);
    const std::int64_t in = s.batch * s.in_h * s.in_w * s.groups, out = s.batch * s.out_h * s.out_w * s.groups;
    const std::vector<T> x = random_values<T>(in, 1, 0.2f), dy = random_values<T>(out, 2),
                         weight = random_values<T>(s.groups * s.kernel_h * s.kernel_w, 3);
    const std::vector<float> bias = random_values<float>(s.groups, 4);
    std::vector<double> plain(size(out)), y(size(out)), dx(size(in)), dw(weight.size()), dbias(bias.size());
    for_each_product(s, [&](std::size_t to, std::size_t from, std::size_t w) {
      const auto value = [](T v) { return static_cast<double>(to_float(v)); };
      plain[to] += value(x[from]) * value(weight[w]);
      dx[from] += value(dy[to]) * value(weight[w]);
      dw[w] += value(dy[to]) * value(x[from]);
    });
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = plain[i] + static_cast<double>(bias[i % bias.size()]);
      dbias[i % bias.size()] += static_cast<double>(to_float(dy[i]));
    }

    DeviceArray<T> gpu_x(x), gpu_dy(dy), gpu_weight(weight);
    DeviceArray<float> gpu_bias(bias);
    DeviceArray<T> got_plain(size(out)), got_y(size(out)), got_dx(size(in)), dx_again(size(in));
    cuda::depthwise_forward<T>(nullptr, s, gpu_x.data(), gpu_weight.data(), nullptr, got_plain.data());
    cuda::depthwise_forward<T>(nullptr, s, gpu_x.data(), gpu_weight.data(), gpu_bias.data(), got_y.data());
    cuda::depthwise_input_grad<T>(nullptr, s, gpu_dy.data(), gpu_weight.data(), got_dx.data());
    cuda::depthwise_input_grad<T>(nullptr, s, gpu_dy.data(), gpu_weight.data(), dx_again.data());
    expect_close(got_plain.download(), rounded<T>(plain), kBound<T>, what + ": y without bias");
    expect_close(got_y.download(), rounded<T>(y), kBound<T>, what + ": y");
    expect_close(got_dx.download(), rounded<T>(dx), kBound<T>, what + ": dx");
    expect_same_bytes(got_dx.download(), dx_again.download(), what + ": dx");

    DeviceArray<float> got_dw(dw.size()), dw_again(dw.size()), got_dbias(dbias.size()), dbias_alone(dbias.size());
    DeviceArray<std::byte> scratch(cuda::depthwise_weight_grad_scratch_bytes(s));
    const auto weight_grad = [&](float* to, float* bias_to) {
      cuda::depthwise_weight_grad<T>(nullptr, s, gpu_x.data(), gpu_dy.data(), to, bias_to, scratch.data());
    };
    weight_grad(got_dw.data(), got_dbias.data());
    weight_grad(dw_again.data(), nullptr);
    weight_grad(nullptr, dbias_alone.data());
    // Products of T are exact in float: the bound is that of float sums.
    expect_close(got_dw.download(), rounded<float>(dw), 2e-5f, what + ": dw");
    expect_close(got_dbias.download(), rounded<float>(dbias), 2e-5f, what + ": dbias");
    expect_same_bytes(got_dw.download(), dw_again.download(), what + ": dw");
    expect_same_bytes(got_dbias.download(), dbias_alone.download(), what + ": dbias");
    if (this->HasFailure()) return;
  }
}

TEST(CudaDepthwiseShape, RefusesGroupsOfSeveralChannels) {
  ConvShape s;
  s.in_channels = s.out_channels = 8, s.groups = 4;
  EXPECT_THROW(cuda::depthwise_weight_grad_scratch_bytes(s), std::logic_error);
}

}  // namespace
}  // namespace overtake
