#pragma once
// 2-D pooling of channels-last images; the unit of work is an image. T is float or bf16.

#include <cstdint>

namespace overtake::kernels {

// Window (p, q) covers input rows [p * stride_h - pad_top, + kernel_h) and columns likewise, clipped to the image.
// out_h and out_w are given, so both ways of rounding them work; every window must touch the image.
struct PoolShape {
  std::int64_t batch = 1, channels = 1, in_h = 1, in_w = 1, out_h = 1, out_w = 1;
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
};

// Throws InternalError unless max pooling can number the places in a window with a byte (kernel_h * kernel_w <= 256)
// and every window touches the image. Kernels below assume it.
void check_pool(const PoolShape& shape);

// y: [batch][out_h][out_w][channels] from x: [batch][in_h][in_w][channels], images [begin, end). argmax: like y, the
// place r * kernel_w + s of the largest value in its window, the first of equals; NaN counts as largest.
template <class T>
void max_pool_forward(const PoolShape& shape, const T* x, T* y, std::uint8_t* argmax, std::int64_t begin,
                      std::int64_t end);

// dx: like x, images [begin, end), overwritten.
template <class T>
void max_pool_input_grad(const PoolShape& shape, const T* dy, const std::uint8_t* argmax, T* dx, std::int64_t begin,
                         std::int64_t end);

// Mean of each window. count_include_pad: padding counts as zeros; what a window has beyond the padding never counts.
template <class T>
void average_pool_forward(const PoolShape& shape, bool count_include_pad, const T* x, T* y, std::int64_t begin,
                          std::int64_t end);
template <class T>
void average_pool_input_grad(const PoolShape& shape, bool count_include_pad, const T* dy, T* dx, std::int64_t begin,
                             std::int64_t end);

// y: [batch][channels] = mean over pixels of x: [batch][pixels][channels], images [begin, end).
template <class T>
void global_average_pool_forward(const T* x, std::int64_t pixels, std::int64_t channels, T* y, std::int64_t begin,
                                 std::int64_t end);
template <class T>
void global_average_pool_input_grad(const T* dy, std::int64_t pixels, std::int64_t channels, T* dx, std::int64_t begin,
                                    std::int64_t end);

}  // namespace overtake::kernels
