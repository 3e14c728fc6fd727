#pragma once
// The weight gradient of depthwise convolutions for the kernel sizes at which oneDNN has no depthwise implementation.

#include <cstddef>

#include "kernels/cpu/conv_shape.h"
#include "overtake/layout.h"

namespace overtake::kernels {

// Whether depthwise_weight_grad can do the shape: one channel in and out per group, a kernel width of 3, 5, 7, 9 or 11.
bool depthwise_weight_grad_handles(const ConvShape& shape);

// "Abcde16a": [channels / 16][kernel_h][kernel_w][16].
Layout depthwise_weight_grad_layout();

std::size_t depthwise_weight_grad_scratch_bytes(const ConvShape& shape);

// dw[c, r, s] = sum over n, p, q of dy[n, c, p, q] * x[n, c, p * stride_h - pad_top + r * dilation_h, ...].
// x: [batch][in_h][in_w][channels], dy: [batch][out_h][out_w][channels], dw: float in depthwise_weight_grad_layout(),
// padding zero, dbias: float [channels] or null, scratch: aligned to 64.
template <class T>
void depthwise_weight_grad(const ConvShape& shape, const T* x, const T* dy, float* dw, float* dbias, void* scratch);

}  // namespace overtake::kernels
