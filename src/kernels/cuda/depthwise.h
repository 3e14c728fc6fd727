#pragma once
// Depthwise convolution (groups == in_channels == out_channels) of channels-last images and its gradients, on the GPU.
// T is float or bf16; the bias and the weights' gradients are float. Weights lie as [channels][kernel_h][kernel_w].
// `bias` and `bf16` of the shape are not read. Calls only enqueue; arrays start at 16-byte boundaries.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/bf16.h"
#include "kernels/cpu/conv_shape.h"

namespace overtake::cuda {

using kernels::ConvShape;

// y: [batch][out_h][out_w][channels], x: [batch][in_h][in_w][channels], bias: [channels] or null.
template <class T>
void depthwise_forward(cudaStream_t stream, const ConvShape& shape, const T* x, const T* weight, const float* bias,
                       T* y);

// dx: like x, overwritten. dy: like y.
template <class T>
void depthwise_input_grad(cudaStream_t stream, const ConvShape& shape, const T* dy, const T* weight, T* dx);

// dw: [channels][kernel_h][kernel_w], dbias: [channels], either may be null. Sums over chunks of pixels, cut by the
// shape and the type alone, go to scratch (16-byte aligned) and are added in order.
std::size_t depthwise_weight_grad_scratch_bytes(const ConvShape& shape);
template <class T>
void depthwise_weight_grad(cudaStream_t stream, const ConvShape& shape, const T* x, const T* dy, float* dw,
                           float* dbias, void* scratch);

}  // namespace overtake::cuda
