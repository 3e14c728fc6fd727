// Pooling against double loops over the definition; gradients against central differences where smooth.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/simd.h"
#include "tensor_check.h"

namespace overtake::kernels {
namespace {

using Doubles = std::vector<double>;

PoolShape make_shape(std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w, std::int64_t out_h,
                     std::int64_t out_w, std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
  PoolShape s;
  s.batch = batch;
  s.channels = channels;
  s.in_h = h;
  s.in_w = w;
  s.out_h = out_h;
  s.out_w = out_w;
  s.kernel_h = s.kernel_w = kernel;
  s.stride_h = s.stride_w = stride;
  s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = pad;
  return s;
}

std::vector<PoolShape> shapes() {
  std::vector<PoolShape> list = {
      make_shape(3, 7, 8, 6, 4, 3, 2, 2, 0),    //
      make_shape(2, 17, 9, 9, 5, 5, 3, 2, 1),   // as in ResNet
      make_shape(1, 3, 7, 7, 7, 7, 3, 1, 1),    // overlapping
      make_shape(9, 1, 8, 8, 4, 4, 3, 2, 0),    // ceil mode: the last window hangs over the edge
      make_shape(2, 130, 5, 5, 2, 2, 2, 3, 0),  // gaps between windows; more channels than one tile
      make_shape(1, 16, 5, 4, 1, 1, 7, 1, 1),   // a window larger than the image
      make_shape(1, 5, 8, 8, 5, 5, 3, 2, 1),    // ceil mode with padding
  };
  PoolShape uneven = make_shape(2, 5, 9, 10, 4, 10, 3, 2, 1);
  uneven.kernel_w = 2;
  uneven.stride_w = 1;
  uneven.pad_top = 0;
  uneven.pad_left = 0;
  list.push_back(uneven);
  return list;
}

// Calls visit(window number, input index, output index, tap) for every place of every window inside the image.
void for_each_place(const PoolShape& s,
                    const std::function<void(std::size_t in, std::size_t out, std::int64_t tap)>& visit) {
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t p = 0; p < s.out_h; ++p)
      for (std::int64_t q = 0; q < s.out_w; ++q)
        for (std::int64_t c = 0; c < s.channels; ++c)
          for (std::int64_t r = 0; r < s.kernel_h; ++r)
            for (std::int64_t t = 0; t < s.kernel_w; ++t) {
              const std::int64_t h = p * s.stride_h - s.pad_top + r, w = q * s.stride_w - s.pad_left + t;
              if (h < 0 || h >= s.in_h || w < 0 || w >= s.in_w) continue;
              visit(index(((n * s.in_h + h) * s.in_w + w) * s.channels + c),
                    index(((n * s.out_h + p) * s.out_w + q) * s.channels + c), r * s.kernel_w + t);
            }
}

std::int64_t in_count(const PoolShape& s) { return s.batch * s.in_h * s.in_w * s.channels; }
std::int64_t out_count(const PoolShape& s) { return s.batch * s.out_h * s.out_w * s.channels; }

// How many places each window divides by, as PyTorch counts them: padding on the far side counts, beyond it never.
Doubles divisors(const PoolShape& s, bool include_pad) {
  Doubles count(index(out_count(s)));
  if (!include_pad) {
    for_each_place(s, [&](std::size_t, std::size_t out, std::int64_t) { count[out] += 1; });
    return count;
  }
  PoolShape padded = s;  // the image with its padding as a larger image
  padded.in_h += s.pad_top + s.pad_bottom;
  padded.in_w += s.pad_left + s.pad_right;
  padded.pad_top = padded.pad_left = 0;
  for_each_place(padded, [&](std::size_t, std::size_t out, std::int64_t) { count[out] += 1; });
  return count;
}

template <class T>
class Pool : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(Pool, Types);

TYPED_TEST(Pool, Max) {
  for (const PoolShape& s : shapes()) {
    SCOPED_TRACE(testing::Message() << s.in_h << "x" << s.in_w << "x" << s.channels << " window " << s.kernel_h);
    check_pool(s);
    const auto x = random_tensor<TypeParam>(in_count(s), 1), dy = random_tensor<TypeParam>(out_count(s), 2);
    const double lowest = -std::numeric_limits<double>::infinity();
    Doubles want(index(out_count(s)), lowest), want_dx(index(in_count(s)));
    std::vector<std::uint8_t> want_argmax(want.size());
    std::vector<std::size_t> source(want.size());
    for_each_place(s, [&](std::size_t in, std::size_t out, std::int64_t tap) {
      const double value = static_cast<double>(to_float(x[in]));
      if (value <= want[out]) return;
      want[out] = value;
      want_argmax[out] = static_cast<std::uint8_t>(tap);
      source[out] = in;
    });
    for (std::size_t i = 0; i < source.size(); ++i) want_dx[source[i]] += static_cast<double>(to_float(dy[i]));

    std::vector<std::uint8_t> argmax(want.size());
    const auto y =
        run_whole_and_split<TypeParam>(out_count(s), s.batch, [&](TypeParam* out, std::int64_t b, std::int64_t e) {
          max_pool_forward(s, x.data(), out, argmax.data(), b, e);
        });
    EXPECT_EQ(to_doubles(y), want);
    EXPECT_EQ(argmax, want_argmax);
    const auto dx =
        run_whole_and_split<TypeParam>(in_count(s), s.batch, [&](TypeParam* out, std::int64_t b, std::int64_t e) {
          max_pool_input_grad(s, dy.data(), argmax.data(), out, b, e);
        });
    expect_close(dx, want_dx, 1e-6, 1);
  }
}

TYPED_TEST(Pool, Average) {
  for (const PoolShape& s : shapes()) {
    for (const bool include_pad : {false, true}) {
      SCOPED_TRACE(testing::Message() << s.in_h << "x" << s.in_w << "x" << s.channels << " window " << s.kernel_h);
      const auto x = random_tensor<TypeParam>(in_count(s), 1), dy = random_tensor<TypeParam>(out_count(s), 2);
      const Doubles divisor = divisors(s, include_pad);
      Doubles want(index(out_count(s))), want_dx(index(in_count(s)));
      for_each_place(s, [&](std::size_t in, std::size_t out, std::int64_t) {
        want[out] += static_cast<double>(to_float(x[in])) / divisor[out];
        want_dx[in] += static_cast<double>(to_float(dy[out])) / divisor[out];
      });
      const auto y =
          run_whole_and_split<TypeParam>(out_count(s), s.batch, [&](TypeParam* out, std::int64_t b, std::int64_t e) {
            average_pool_forward(s, include_pad, x.data(), out, b, e);
          });
      expect_close(y, want, 1e-6, 1);
      const auto dx =
          run_whole_and_split<TypeParam>(in_count(s), s.batch, [&](TypeParam* out, std::int64_t b, std::int64_t e) {
            average_pool_input_grad(s, include_pad, dy.data(), out, b, e);
          });
      expect_close(dx, want_dx, 1e-6, 1);
    }
  }
}

TYPED_TEST(Pool, GlobalAverage) {
  for (const std::int64_t channels : {1, 7, 16, 130}) {
    const std::int64_t batch = 5, pixels = 49;
    const auto x = random_tensor<TypeParam>(batch * pixels * channels, 1);
    const auto dy = random_tensor<TypeParam>(batch * channels, 2);
    Doubles want(index(batch * channels)), want_dx(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t out = i / index(pixels * channels) * index(channels) + i % index(channels);
      want[out] += static_cast<double>(to_float(x[i])) / static_cast<double>(pixels);
      want_dx[i] = static_cast<double>(to_float(dy[out])) / static_cast<double>(pixels);
    }
    const auto y =
        run_whole_and_split<TypeParam>(batch * channels, batch, [&](TypeParam* out, std::int64_t b, std::int64_t e) {
          global_average_pool_forward(x.data(), pixels, channels, out, b, e);
        });
    expect_close(y, want, 1e-6, 1);
    const auto dx = run_whole_and_split<TypeParam>(
        batch * pixels * channels, batch, [&](TypeParam* out, std::int64_t b, std::int64_t e) {
          global_average_pool_input_grad(dy.data(), pixels, channels, out, b, e);
        });
    expect_close(dx, want_dx, 1e-6);
  }
}

TEST(MaxPool, NanIsKeptAndTiesGoToTheFirst) {
  const PoolShape s = make_shape(1, 1, 2, 4, 1, 2, 2, 2, 0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {1, nan, 3, 2, 5, 0, 3, 3};
  std::vector<float> y(2);
  std::vector<std::uint8_t> argmax(2);
  max_pool_forward(s, x.data(), y.data(), argmax.data(), 0, 1);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(argmax[0], 1);
  EXPECT_EQ(y[1], 3.0f);
  EXPECT_EQ(argmax[1], 0);
}

TEST(Lanes, RoundsToBf16LikeFromFloat) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0,         -0.0f,        1.0f, 1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 1.0f + 0x1.8p-8f,
                                     nan,       -nan,         inf,  -inf,           3.4e38f,        -3.4e38f,
                                     0x1p-130f, -0x1.7p-127f, 7.3f, 1e-3f};
  for (std::int64_t width = 1; width <= kLanes; ++width) {
    std::vector<bf16> got(values.size());
    if (width == kLanes) {
      store_lanes(got.data(), load_lanes(values.data()));
    } else {
      store_lanes(got.data(), load_lanes(values.data(), width), width);
    }
    for (std::size_t i = 0; i < index(width); ++i)
      EXPECT_EQ(got[i].bits, from_float<bf16>(values[i]).bits) << values[i];
    for (std::size_t i = index(width); i < got.size(); ++i) EXPECT_EQ(got[i].bits, 0) << "written beyond the width";
  }
}

TEST(PoolErrors, WindowsOutsideTheImageAreRefused) {
  EXPECT_THROW(check_pool(make_shape(1, 1, 4, 4, 4, 4, 2, 2, 0)), InternalError);
  EXPECT_THROW(check_pool(make_shape(1, 1, 4, 4, 3, 3, 2, 2, 2)), InternalError);
  EXPECT_THROW(check_pool(make_shape(1, 1, 40, 40, 1, 1, 17, 17, 0)), InternalError);
}

}  // namespace
}  // namespace overtake::kernels
