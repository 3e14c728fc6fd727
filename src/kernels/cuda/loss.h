#pragma once
// Losses and their gradients on the GPU: kernels/cpu/loss.h. T, the type of predictions and their gradients, is float
// or bf16. Everything is in device memory; calls only enqueue; arrays start at 16-byte boundaries.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/loss.h"

namespace overtake::cuda {

using kernels::CrossEntropy;

// Both phases of the CPU's. logits [rows, width], labels [rows]. Writes lse [rows]; metrics [3] = mean loss over the
// rows that count (0 if none), how many count, how many are correct; and *first_bad, the first row whose label is
// neither ignore_index nor in [0, classes) (treated as ignored), or -1.
std::size_t cross_entropy_scratch_bytes(std::int64_t rows);
template <class T>
void cross_entropy_forward(cudaStream_t stream, const CrossEntropy& loss, const T* logits, const std::int32_t* labels,
                           std::int64_t rows, float* lse, float* metrics, std::int64_t* first_bad, void* scratch);

// dlogits [rows, width] = (softmax(logits) - target) * scale / *count, 0 for ignored rows and in the columns from
// `classes` on; count is metrics + 1. May be in place (dlogits == logits).
template <class T>
void cross_entropy_input_grad(cudaStream_t stream, const CrossEntropy& loss, const T* logits,
                              const std::int32_t* labels, const float* lse, const float* count, float scale,
                              std::int64_t rows, T* dlogits);

// Both phases of the mean squared error of x, target [count]: metrics [3] = the mean of (x - target)^2, rows, 0.
std::size_t mean_squared_error_scratch_bytes(std::int64_t count);
template <class T>
void mean_squared_error_forward(cudaStream_t stream, const T* x, const float* target, std::int64_t count,
                                std::int64_t rows, float* metrics, void* scratch);

// dx = 2 (x - target) / count * scale. May be in place (dx == x).
template <class T>
void mean_squared_error_input_grad(cudaStream_t stream, const T* x, const float* target, float scale, T* dx,
                                   std::int64_t count);

}  // namespace overtake::cuda
