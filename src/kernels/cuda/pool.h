#pragma once
// 2-D pooling of channels-last images on the GPU: kernels/cpu/pool.h. T is float or bf16. Calls only enqueue; arrays
// start at 16-byte boundaries. y and dy may have a pitch, elements from one pixel to the next; 0: the channels.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/pool.h"

namespace overtake::cuda {

using kernels::PoolShape;  // check it with kernels::check_pool

// y: [batch][out_h][out_w][channels] from x: [batch][in_h][in_w][channels]. argmax: like y, the place r * kernel_w + s
// of the largest value in its window, the first of equals; NaN counts as largest.
template <class T>
void max_pool_forward(cudaStream_t stream, const PoolShape& shape, const T* x, T* y, std::uint8_t* argmax,
                      std::int64_t y_pitch = 0);

// dx: like x, overwritten. Each pixel gathers from its windows in ascending order.
template <class T>
void max_pool_input_grad(cudaStream_t stream, const PoolShape& shape, const T* dy, const std::uint8_t* argmax, T* dx,
                         std::int64_t dy_pitch = 0);

// Mean of each window. count_include_pad: padding counts as zeros; what a window has beyond the padding never counts.
template <class T>
void average_pool_forward(cudaStream_t stream, const PoolShape& shape, bool count_include_pad, const T* x, T* y,
                          std::int64_t y_pitch = 0);
template <class T>
void average_pool_input_grad(cudaStream_t stream, const PoolShape& shape, bool count_include_pad, const T* dy, T* dx,
                             std::int64_t dy_pitch = 0);

// y: [batch][channels] = mean over pixels of x: [batch][pixels][channels].
template <class T>
void global_average_pool_forward(cudaStream_t stream, const T* x, std::int64_t pixels, std::int64_t channels, T* y,
                                 std::int64_t batch);
template <class T>
void global_average_pool_input_grad(cudaStream_t stream, const T* dy, std::int64_t pixels, std::int64_t channels, T* dx,
                                    std::int64_t batch);

}  // namespace overtake::cuda
