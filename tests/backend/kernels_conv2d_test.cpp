// Convolutions against double-precision loops written from the definition.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "base/bf16.h"
#include "base/error.h"
#include "kernels/cpu/conv2d.h"
#include "kernels/cpu/reorder.h"

namespace overtake::kernels {
namespace {

using Doubles = std::vector<double>;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

// Random values that are exact in T, so that the reference sees what the kernel sees.
template <class T>
std::vector<T> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<T> values(size(count));
  for (T& value : values) value = from_float<T>(uniform(random));
  return values;
}

template <class T>
Doubles doubles(std::span<const T> values) {
  Doubles result;
  for (const T value : values) result.push_back(static_cast<double>(to_float(value)));
  return result;
}

std::int64_t x_count(const ConvShape& s) { return s.batch * s.in_h * s.in_w * s.in_channels; }
std::int64_t y_count(const ConvShape& s) { return s.batch * s.out_h * s.out_w * s.out_channels; }
std::int64_t w_count(const ConvShape& s) {
  return s.out_channels * (s.in_channels / s.groups) * s.kernel_h * s.kernel_w;
}

// Calls visit(x index, w index, y index) for every product of the convolution; w is plain (o, i/g, kh, kw).
void for_each_product(const ConvShape& s, const std::function<void(std::size_t, std::size_t, std::size_t)>& visit) {
  const std::int64_t in_per_group = s.in_channels / s.groups, out_per_group = s.out_channels / s.groups;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t p = 0; p < s.out_h; ++p)
      for (std::int64_t q = 0; q < s.out_w; ++q)
        for (std::int64_t o = 0; o < s.out_channels; ++o)
          for (std::int64_t i = 0; i < in_per_group; ++i)
            for (std::int64_t r = 0; r < s.kernel_h; ++r)
              for (std::int64_t t = 0; t < s.kernel_w; ++t) {
                const std::int64_t h = p * s.stride_h - s.pad_top + r * s.dilation_h;
                const std::int64_t w = q * s.stride_w - s.pad_left + t * s.dilation_w;
                if (h < 0 || h >= s.in_h || w < 0 || w >= s.in_w) continue;
                const std::int64_t c = o / out_per_group * in_per_group + i;
                visit(size(((n * s.in_h + h) * s.in_w + w) * s.in_channels + c),
                      size(((o * in_per_group + i) * s.kernel_h + r) * s.kernel_w + t),
                      size(((n * s.out_h + p) * s.out_w + q) * s.out_channels + o));
              }
}

// Weights in `layout` with element type To, from plain float ones, through the generic reorder.
template <class To, class From>
std::vector<To> in_layout(const std::vector<From>& plain, const Layout& layout, const ConvShape& s) {
  const auto dims = weight_dims(s);
  std::vector<To> result(size(padded_elements(layout, dims)), from_float<To>(std::nanf("")));
  reorder(plain.data(), plain_layout(layout.rank), result.data(), layout, dims, 0, reorder_units(layout, dims));
  return result;
}

std::vector<float> to_plain(const std::vector<float>& weights, const Layout& layout, const ConvShape& s) {
  const auto dims = weight_dims(s);
  std::vector<float> plain(size(w_count(s)));
  reorder(weights.data(), layout, plain.data(), plain_layout(layout.rank), dims, 0,
          reorder_units(plain_layout(layout.rank), dims));
  return plain;
}

// |got - want| <= tolerance * (1 + |want|); `terms` is how many products each sum has.
template <class T>
void expect_near(const std::vector<T>& got, const Doubles& want, double terms, const char* what) {
  const double tolerance = (sizeof(T) == 2 ? 8e-3 : 1e-6) + 2e-7 * std::sqrt(terms) + 1e-6;
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(to_float(got[i])), want[i], tolerance * (1 + std::abs(want[i])))
        << what << " " << i;
  }
}

ConvShape make_shape(std::int64_t batch, std::int64_t in_channels, std::int64_t in_h, std::int64_t in_w,
                     std::int64_t out_channels, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                     std::int64_t dilation = 1, std::int64_t groups = 1, bool bias = false) {
  ConvShape s;
  s.batch = batch;
  s.in_channels = in_channels;
  s.in_h = in_h;
  s.in_w = in_w;
  s.out_channels = out_channels;
  s.kernel_h = s.kernel_w = kernel;
  s.stride_h = s.stride_w = stride;
  s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = pad;
  s.dilation_h = s.dilation_w = dilation;
  s.groups = groups;
  s.bias = bias;
  s.out_h = (in_h + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
  s.out_w = (in_w + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
  return s;
}

std::vector<ConvShape> shapes() {
  std::vector<ConvShape> list = {
      make_shape(2, 3, 17, 15, 16, 7, 2, 3),                 // the first layer of a ResNet
      make_shape(2, 1, 9, 9, 7, 3, 1, 1, 1, 1, true),        // one channel
      make_shape(2, 16, 8, 8, 32, 3, 1, 1, 1, 1, true),      //
      make_shape(2, 32, 7, 7, 64, 1, 1, 0),                  // 1 x 1
      make_shape(2, 64, 8, 8, 17, 1, 2, 0, 1, 1, true),      // 1 x 1 strided, odd channels
      make_shape(1, 17, 10, 6, 7, 3, 2, 1),                  // odd channels
      make_shape(1, 20, 12, 11, 33, 3, 1, 2, 2, 1, true),    // dilated
      make_shape(2, 16, 9, 9, 24, 3, 1, 1, 1, 2, true),      // grouped
      make_shape(1, 32, 8, 8, 32, 3, 1, 1, 1, 8),            // groups of four
      make_shape(2, 32, 9, 8, 32, 3, 1, 1, 1, 32, true),     // depthwise
      make_shape(2, 17, 9, 8, 17, 3, 2, 1, 1, 17),           // depthwise, odd channels, stride
      make_shape(2, 48, 11, 10, 48, 5, 1, 2, 1, 48, true),   // depthwise 5 x 5
      make_shape(3, 19, 11, 10, 19, 5, 2, 2, 1, 19, true),   // depthwise 5 x 5, odd channels, stride
      make_shape(2, 16, 13, 14, 16, 7, 1, 3, 1, 16, true),   // depthwise 7 x 7
      make_shape(1, 24, 15, 15, 24, 3, 1, 3, 3, 24, false),  // depthwise, dilated
      make_shape(1, 3, 6, 6, 3, 5, 3, 0, 1, 3, true),        // depthwise, windows that do not overlap, no padding
  };
  ConvShape uneven = make_shape(2, 8, 9, 10, 16, 3, 1, 0, 1, 1, true);  // each side padded by another width
  uneven.pad_top = 1;
  uneven.pad_left = 0;
  uneven.pad_bottom = 2;
  uneven.pad_right = 1;
  uneven.kernel_w = 2;
  uneven.out_h = 10;
  uneven.out_w = 10;
  list.push_back(uneven);
  ConvShape tall = make_shape(2, 20, 9, 10, 20, 5, 1, 0, 1, 20, true);  // the same for depthwise
  tall.pad_top = 3;
  tall.pad_left = 1;
  tall.pad_bottom = 1;
  tall.pad_right = 4;
  tall.kernel_h = 3;
  tall.out_h = 11;
  tall.out_w = 11;
  list.push_back(tall);
  return list;
}

template <class T>
ConvShape with_type(ConvShape s) {
  s.bf16 = sizeof(T) == 2;
  return s;
}

template <class T>
class Conv : public testing::Test {
 protected:
  Conv() { omp_set_num_threads(1); }
};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Conv, Types);

// Scratch of the given size, aligned as the kernels ask.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) : data_(bytes / sizeof(Line) + 1) {}
  void* get() { return data_.data(); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> data_;
};

TYPED_TEST(Conv, ForwardMatchesDefinition) {
  for (const ConvShape& base : shapes()) {
    const ConvShape s = with_type<TypeParam>(base);
    SCOPED_TRACE(to_string(s));
    const auto x = random_values<TypeParam>(x_count(s), 1);
    const auto w = random_values<TypeParam>(w_count(s), 2);
    const auto bias = random_values<float>(s.out_channels, 3);
    Doubles want(size(y_count(s)));
    for (std::size_t i = 0; s.bias && i < want.size(); ++i) want[i] = bias[i % size(s.out_channels)];
    const Doubles xd = doubles<TypeParam>(x), wd = doubles<TypeParam>(w);
    for_each_product(s, [&](std::size_t xi, std::size_t wi, std::size_t yi) { want[yi] += xd[xi] * wd[wi]; });

    const ConvForward conv(s);
    Scratch scratch(conv.scratch_bytes());
    std::vector<TypeParam> y(size(y_count(s)), from_float<TypeParam>(std::nanf("")));
    conv.run(x.data(), in_layout<TypeParam>(w, conv.weight_layout(), s).data(), s.bias ? bias.data() : nullptr,
             y.data(), scratch.get());
    expect_near(y, want, static_cast<double>(w_count(s) / s.out_channels), "y");
  }
}

TYPED_TEST(Conv, InputGradMatchesDefinition) {
  for (const ConvShape& base : shapes()) {
    const ConvShape s = with_type<TypeParam>(base);
    SCOPED_TRACE(to_string(s));
    const auto dy = random_values<TypeParam>(y_count(s), 1);
    const auto w = random_values<TypeParam>(w_count(s), 2);
    Doubles want(size(x_count(s)));
    const Doubles dyd = doubles<TypeParam>(dy), wd = doubles<TypeParam>(w);
    for_each_product(s, [&](std::size_t xi, std::size_t wi, std::size_t yi) { want[xi] += dyd[yi] * wd[wi]; });

    const ConvInputGrad conv(s);
    Scratch scratch(conv.scratch_bytes());
    std::vector<TypeParam> dx(size(x_count(s)), from_float<TypeParam>(std::nanf("")));
    conv.run(dy.data(), in_layout<TypeParam>(w, conv.weight_layout(), s).data(), dx.data(), scratch.get());
    expect_near(dx, want, static_cast<double>(w_count(s) / s.in_channels), "dx");
  }
}

TYPED_TEST(Conv, WeightGradMatchesDefinition) {
  for (const ConvShape& base : shapes()) {
    const ConvShape s = with_type<TypeParam>(base);
    SCOPED_TRACE(to_string(s));
    const auto x = random_values<TypeParam>(x_count(s), 1);
    const auto dy = random_values<TypeParam>(y_count(s), 2);
    Doubles want(size(w_count(s))), want_bias(size(s.out_channels));
    const Doubles xd = doubles<TypeParam>(x), dyd = doubles<TypeParam>(dy);
    for_each_product(s, [&](std::size_t xi, std::size_t wi, std::size_t yi) { want[wi] += xd[xi] * dyd[yi]; });
    for (std::size_t i = 0; i < dyd.size(); ++i) want_bias[i % want_bias.size()] += dyd[i];

    const ConvWeightGrad conv(s);
    Scratch scratch(conv.scratch_bytes());
    std::vector<float> dw(size(padded_elements(conv.weight_layout(), weight_dims(s))), std::nanf(""));
    std::vector<float> dbias(size(s.out_channels), std::nanf(""));
    conv.run(x.data(), dy.data(), dw.data(), s.bias ? dbias.data() : nullptr, scratch.get());
    const double terms = static_cast<double>(s.batch * s.out_h * s.out_w);
    const std::vector<float> plain = to_plain(dw, conv.weight_layout(), s);
    expect_near(plain, want, terms, "dw");
    if (s.bias) expect_near(dbias, want_bias, terms, "dbias");
    // What is not a weight must be zero, or the optimizer would spread it: back and forth gives the same bytes.
    EXPECT_EQ(in_layout<float>(plain, conv.weight_layout(), s), dw) << "padding is not zero";
  }
}

TYPED_TEST(Conv, RunsGiveTheSameBits) {
  for (const ConvShape& base : {shapes()[2], shapes()[11]}) {
    const ConvShape s = with_type<TypeParam>(base);
    const auto x = random_values<TypeParam>(x_count(s), 1);
    const auto dy = random_values<TypeParam>(y_count(s), 2);
    std::vector<std::vector<float>> results;
    for (int run = 0; run < 2; ++run) {
      const ConvWeightGrad conv(s);
      Scratch scratch(conv.scratch_bytes());
      std::memset(scratch.get(), run == 0 ? 0xff : 0x3c, conv.scratch_bytes());
      std::vector<float> dw(size(padded_elements(conv.weight_layout(), weight_dims(s))));
      std::vector<float> dbias(size(s.out_channels));
      conv.run(x.data(), dy.data(), dw.data(), dbias.data(), scratch.get());
      results.push_back(dw);
      results.push_back(dbias);
    }
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(results[1], results[3]);
  }
}

TYPED_TEST(Conv, OneObjectRunsOnSeveralThreads) {
  const ConvShape s = with_type<TypeParam>(shapes()[2]);
  const auto x = random_values<TypeParam>(x_count(s), 1);
  const auto bias = random_values<float>(s.out_channels, 3);
  const ConvForward conv(s);
  const auto w = in_layout<TypeParam>(random_values<TypeParam>(w_count(s), 2), conv.weight_layout(), s);
  std::vector<std::vector<TypeParam>> results(3, std::vector<TypeParam>(size(y_count(s))));
  const auto run = [&](std::vector<TypeParam>& y) {
    omp_set_num_threads(1);
    Scratch scratch(conv.scratch_bytes());
    for (int repeat = 0; repeat < 20; ++repeat) conv.run(x.data(), w.data(), bias.data(), y.data(), scratch.get());
  };
  run(results[0]);
  std::thread first(run, std::ref(results[1])), second(run, std::ref(results[2]));
  first.join();
  second.join();
  for (const auto& y : results) {
    EXPECT_EQ(std::memcmp(y.data(), results[0].data(), y.size() * sizeof(TypeParam)), 0);
  }
}

TEST(ConvErrors, ImpossibleShapeIsNamed) {
  omp_set_num_threads(1);
  ConvShape s = make_shape(1, 4, 8, 8, 4, 3, 1, 1);
  s.out_h = 9;
  try {
    const ConvForward conv(s);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("1x4x8x8 -> 1x4x9x8, kernel 3x3"), std::string::npos) << error.what();
  }
}

TEST(ConvErrors, MoreThanOneOpenMpThreadIsRefused) {
  omp_set_num_threads(2);
  EXPECT_THROW(ConvForward(make_shape(1, 4, 8, 8, 4, 3, 1, 1)), InternalError);
  omp_set_num_threads(1);
}

TEST(ConvDepthwise, OwnKernelTakesLargeKernels) {
  omp_set_num_threads(1);
  EXPECT_EQ(ConvWeightGrad(make_shape(1, 32, 14, 14, 32, 5, 1, 2, 1, 32)).implementation(), "overtake:depthwise");
}

}  // namespace
}  // namespace overtake::kernels
