#pragma once
// Softmax over the middle dim of [outer, axis, inner] on the GPU: kernels/cpu/softmax.h. T is float or bf16. Calls only
// enqueue; arrays start at 16-byte boundaries.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"

namespace overtake::cuda {

// y = e^(x - max) / sum of the same; a row whose entries are all -inf becomes NaN. May be in place.
template <class T>
void softmax_forward(cudaStream_t stream, const T* x, T* y, std::int64_t axis, std::int64_t inner, std::int64_t outer);

// dx = y (dy - sum(y dy)). May be in place over y or dy.
template <class T>
void softmax_backward(cudaStream_t stream, const T* y, const T* dy, T* dx, std::int64_t axis, std::int64_t inner,
                      std::int64_t outer);

}  // namespace overtake::cuda
