#pragma once
// Activations, elementwise, on the GPU: kernels/cpu/activation.h. T is float or bf16. Calls only enqueue.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/activation.h"

namespace overtake::cuda {

using kernels::Activation;
using kernels::ActivationFunction;

// y = f(x); x, y [count]. May be in place (y == x).
template <class T>
void activation_forward(cudaStream_t stream, const ActivationFunction& function, const T* x, T* y, std::int64_t count);

// dx = f'(x) dy; x, y, dy, dx [count]. The one of x and y that is not needed (kernels::backward_needs_input) may be
// null. May be in place (dx == dy, or dx == the needed one of x and y).
template <class T>
void activation_backward(cudaStream_t stream, const ActivationFunction& function, const T* x, const T* y, const T* dy,
                         T* dx, std::int64_t count);

}  // namespace overtake::cuda
