#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace overtake::kernels {

// One 2-D convolution over one part of a batch:
//   y[n, o, p, q] = bias[o] + sum over i, r, s of w[o, i, r, s] * x[n, i, p * stride_h - pad_top + r * dilation_h, ...]
// groups == in_channels is depthwise.
struct ConvShape {
  std::int64_t batch = 1, in_channels = 1, in_h = 1, in_w = 1;
  std::int64_t out_channels = 1, out_h = 1, out_w = 1;
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  bool bias = false;  // forward adds a bias; the weight gradient also gives the bias's gradient
  bool bf16 = false;  // activations and weights are bf16; bias, weight gradient and bias gradient are float

  bool operator==(const ConvShape&) const = default;
};

// Logical dimensions of the weights: (o, i, kh, kw), or (g, o/g, i/g, kh, kw) if groups > 1.
std::vector<std::int64_t> weight_dims(const ConvShape& shape);

// For messages: "8x64x56x56 -> 8x64x56x56, kernel 3x3, ...".
std::string to_string(const ConvShape& shape);

}  // namespace overtake::kernels
