// Adaptive average pooling against PyTorch's definition in double loops; its gradient against the same sums transposed.
#include "kernels/cpu/adaptive_pool.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor_check.h"

namespace overtake::kernels {
namespace {

struct Case {
  std::int64_t batch, channels, in_h, in_w, out_h, out_w;
};
constexpr Case kCases[] = {
    {2, 3, 7, 7, 7, 7},     // itself
    {3, 17, 8, 6, 4, 3},    // equal windows
    {1, 16, 7, 5, 3, 2},    // overlapping windows
    {2, 33, 9, 10, 4, 7},   //
    {2, 5, 1, 1, 7, 7},     // one pixel repeated
    {1, 7, 3, 4, 7, 5},     // more outputs than inputs, overlapping
    {9, 130, 13, 11, 1, 1}  // the whole image
};

// Calls visit(input index, output index, size of the window) for every place of every window.
template <class Visit>
void for_each_place(const Case& s, const Visit& visit) {
  const auto first = [](std::int64_t p, std::int64_t in, std::int64_t out) {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(p * in) / static_cast<double>(out)));
  };
  const auto last = [](std::int64_t p, std::int64_t in, std::int64_t out) {
    return static_cast<std::int64_t>(std::ceil(static_cast<double>((p + 1) * in) / static_cast<double>(out)));
  };
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t p = 0; p < s.out_h; ++p)
      for (std::int64_t q = 0; q < s.out_w; ++q) {
        const std::int64_t top = first(p, s.in_h, s.out_h), bottom = last(p, s.in_h, s.out_h);
        const std::int64_t left = first(q, s.in_w, s.out_w), right = last(q, s.in_w, s.out_w);
        for (std::int64_t h = top; h < bottom; ++h)
          for (std::int64_t w = left; w < right; ++w)
            for (std::int64_t c = 0; c < s.channels; ++c)
              visit(index(((n * s.in_h + h) * s.in_w + w) * s.channels + c),
                    index(((n * s.out_h + p) * s.out_w + q) * s.channels + c),
                    static_cast<double>((bottom - top) * (right - left)));
      }
}

template <class T>
void check() {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.in_h << " x " << c.in_w << " to " << c.out_h << " x " << c.out_w);
    const AdaptivePoolShape s{c.channels, c.in_h, c.in_w, c.out_h, c.out_w};
    const std::int64_t in = c.batch * c.in_h * c.in_w * c.channels, out = c.batch * c.out_h * c.out_w * c.channels;
    const auto x = random_tensor<T>(in, 1), dy = random_tensor<T>(out, 2);
    std::vector<double> y_want(index(out), 0.0), dx_want(index(in), 0.0);
    const std::vector<double> x_value = to_doubles(x), dy_value = to_doubles(dy);
    for_each_place(c, [&](std::size_t i, std::size_t o, double size) {
      y_want[o] += x_value[i] / size;
      dx_want[i] += dy_value[o] / size;  // y is linear in x
    });
    const auto y = run_whole_and_split<T>(out, c.batch, [&](T* to, std::int64_t begin, std::int64_t end) {
      adaptive_pool_forward(s, x.data(), to, begin, end);
    });
    expect_close(y, y_want, 1e-6, 1.0);
    const auto dx = run_whole_and_split<T>(in, c.batch, [&](T* to, std::int64_t begin, std::int64_t end) {
      adaptive_pool_input_grad(s, dy.data(), to, begin, end);
    });
    expect_close(dx, dx_want, 2e-6, std::max(1.0, static_cast<double>(out) / static_cast<double>(in)));
  }
}

TEST(AdaptivePoolKernel, Float) { check<float>(); }
TEST(AdaptivePoolKernel, Bf16) { check<bf16>(); }

}  // namespace
}  // namespace overtake::kernels
