#pragma once
// Batch normalisation of channels-last activations, seen as [rows][channels] with rows = N * H * W:
//   y = act((x - mean) * rstd * gamma + beta [+ residual]), act = none or relu; as kernels/cpu/batch_norm.h.
// Training forward is reduce -> statistics -> apply; the gradients are grad_reduce -> weight_grad -> input_grad.
// T is float or bf16. All arrays are in GPU memory at 16-byte boundaries; each call only enqueues.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/batch_norm.h"

namespace overtake::cuda {

using kernels::BatchNormChannels;  // here with pointers into GPU memory
using kernels::BatchNormMask;

// Floats of `partials` for the statistics and for the gradients.
std::int64_t batch_norm_partials(std::int64_t rows, std::int64_t channels);
std::int64_t batch_norm_grad_partials(std::int64_t rows, std::int64_t channels);

// Writes the sums of deviations and of their squares over chunks of rows of x: [rows][channels]. Deviations are from
// the first row of x, the origin, so that large values lose nothing; the origin is written as well.
template <class T>
void batch_norm_reduce(cudaStream_t stream, const T* x, std::int64_t rows, std::int64_t channels, float* partials);

// mean and rstd = 1 / sqrt(variance + epsilon) [channels] from all chunks. running_mean and running_var, if not null,
// move by momentum towards the mean and the unbiased variance.
void batch_norm_statistics(cudaStream_t stream, const float* partials, std::int64_t rows, std::int64_t channels,
                           float epsilon, float momentum, float* mean, float* rstd, float* running_mean,
                           float* running_var);

// rstd for evaluation, where mean = running_mean: 1 / sqrt(running_var + epsilon) [channels].
void batch_norm_running_rstd(cudaStream_t stream, const float* running_var, float epsilon, std::int64_t channels,
                             float* rstd);

// y [rows][channels]. residual: [rows][channels] or null. y may be in place over x or residual.
template <class T>
void batch_norm_apply(cudaStream_t stream, const T* x, const T* residual, const BatchNormChannels& norm,
                      std::int64_t rows, std::int64_t channels, bool relu, T* y);

// Writes the sums of dz and of dz * (x - mean) over chunks of rows. y: [rows][channels], only read if mask is from_y.
// dz: [rows][channels], written if not null (the residual's gradient); may be in place over dy.
template <class T>
void batch_norm_grad_reduce(cudaStream_t stream, const T* x, const T* dy, const T* y, const BatchNormChannels& norm,
                            BatchNormMask mask, std::int64_t rows, std::int64_t channels, T* dz, float* partials);

// dgamma and dbeta [channels] from all chunks, each if not null.
void batch_norm_weight_grad(cudaStream_t stream, const float* partials, std::int64_t rows, std::int64_t channels,
                            const float* rstd, float* dgamma, float* dbeta);

// dx [rows][channels] through the batch statistics. dy: the gradient of y with mask from_x or none, or dz with mask
// none. dx may be in place over dy or x.
template <class T>
void batch_norm_input_grad(cudaStream_t stream, const T* x, const T* dy, const BatchNormChannels& norm,
                           const float* dgamma, const float* dbeta, BatchNormMask mask, std::int64_t rows,
                           std::int64_t channels, T* dx);

}  // namespace overtake::cuda
