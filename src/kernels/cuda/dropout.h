#pragma once
// Dropout on the GPU: kernels/cpu/dropout.h, with the same mask to the bit. T is float or bf16. Calls only enqueue.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "kernels/cuda/step_values.h"

namespace overtake::cuda {

// y = x / (1 - p) where the element survives (kernels::dropout_keeps), else 0; x, y [count], 0 <= p < 1. The step is
// values->step, the key {low half of values->seed, high half ^ salt * 0x9E3779B9}; values is in device memory. The
// backward kernel is the same one with dy for x and dx for y. May be in place.
template <class T>
void dropout(cudaStream_t stream, const StepValues* values, std::uint32_t salt, float p, const T* x, T* y,
             std::int64_t count);

}  // namespace overtake::cuda
