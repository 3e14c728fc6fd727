#pragma once
// Adaptive average pooling of channels-last images on the GPU: kernels/cpu/adaptive_pool.h. T is float or bf16. Calls
// only enqueue; arrays start at 16-byte boundaries.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/adaptive_pool.h"

namespace overtake::cuda {

using kernels::AdaptivePoolShape;

// y: [batch][out_h][out_w][channels], the means of the windows of x: [batch][in_h][in_w][channels].
template <class T>
void adaptive_pool_forward(cudaStream_t stream, const AdaptivePoolShape& shape, const T* x, T* y, std::int64_t batch);

// dx: like x, overwritten. Each pixel gathers from its windows in ascending order.
template <class T>
void adaptive_pool_input_grad(cudaStream_t stream, const AdaptivePoolShape& shape, const T* dy, T* dx,
                              std::int64_t batch);

}  // namespace overtake::cuda
