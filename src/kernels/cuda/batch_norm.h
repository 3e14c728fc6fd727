#pragma once
// Batch normalisation of channels-last activations, seen as [rows][channels] with rows = N * H * W:
//   y = f(z), z = (x - mean) * rstd * gamma + beta [+ residual]; as kernels/cpu/batch_norm.h, with more functions f.
// Training forward is statistics -> apply; the gradients are weight_grad -> input_grad; each is one kernel.
// T is float or bf16. All arrays are in GPU memory at 16-byte boundaries; each call only enqueues. Fewer than 2^31
// rows.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/batch_norm.h"

namespace overtake::cuda {

using kernels::BatchNormChannels;  // here with pointers into GPU memory
using kernels::BatchNormMask;

// Elements from one row to the next, of the arrays that may be parts of wider ones; 0: the channels. y has none where
// there is a residual.
struct BatchNormPitches {
  std::int64_t x = 0, y = 0, dy = 0, dx = 0, add = 0;
};

// f; those after relu never come with a residual.
enum class NormFunction { none, relu, hard_swish, silu };

// Floats of `partials` for the statistics and for the gradients.
std::int64_t batch_norm_partials(std::int64_t rows, std::int64_t channels);
std::int64_t batch_norm_grad_partials(std::int64_t rows, std::int64_t channels);

// Elements of `counters`, for the statistics as for the gradients. They must be 0 before a call and are 0 again after
// it, so calls that follow each other may share them; calls that may run at the same time may not.
std::int64_t batch_norm_counters(std::int64_t rows, std::int64_t channels);

// mean and rstd = 1 / sqrt(variance + epsilon) [channels] of x: [rows][channels]. Sums are of deviations from the first
// row of x, so that large values lose nothing. running_mean and running_var, each if not null, move by momentum towards
// the mean and the unbiased variance.
template <class T>
void batch_norm_statistics(cudaStream_t stream, const T* x, std::int64_t rows, std::int64_t channels, float epsilon,
                           float momentum, float* mean, float* rstd, float* running_mean, float* running_var,
                           float* partials, unsigned* counters, const BatchNormPitches& pitches = {});

// Where the rows of several members make one batch: of each, moments [2][channels], the mean and the sum of squared
// deviations from it ...
template <class T>
void batch_norm_moments(cudaStream_t stream, const T* x, std::int64_t rows, std::int64_t channels, double* moments,
                        float* partials, unsigned* counters, const BatchNormPitches& pitches = {});

// ... and the statistics of all from the moments of each, [members][2][channels], in their order; rows: of each.
void batch_norm_joint_statistics(cudaStream_t stream, const double* moments, std::int64_t members, std::int64_t rows,
                                 std::int64_t channels, float epsilon, float momentum, float* mean, float* rstd,
                                 float* running_mean, float* running_var);

// rstd for evaluation, where mean = running_mean: 1 / sqrt(running_var + epsilon) [channels].
void batch_norm_running_rstd(cudaStream_t stream, const float* running_var, float epsilon, std::int64_t channels,
                             float* rstd);

// y [rows][channels]. residual: [rows][channels] or null. y may be in place over x or residual.
template <class T>
void batch_norm_apply(cudaStream_t stream, const T* x, const T* residual, const BatchNormChannels& norm,
                      std::int64_t rows, std::int64_t channels, NormFunction function, T* y,
                      const BatchNormPitches& pitches = {});

// dgamma and dbeta [channels], each if not null, and dz, the gradient of z: [rows][channels], if not null.
// The gradient of y is dy, or dy + dy2 if dy2 is not null; both [rows][channels]. mask says how dz comes from it:
//   none    it is dz already (or there is no function)
//   from_x  times f'(z), with z recomputed from x; there was no residual
//   from_y  relu only: where y > 0; y: [rows][channels], not read otherwise
// The sums are of dz as stored, where it is stored, so that input_grad of dz agrees with them. dz may be in place over
// dy or dy2.
template <class T>
void batch_norm_weight_grad(cudaStream_t stream, const T* x, const T* dy, const T* dy2, const T* y,
                            const BatchNormChannels& norm, NormFunction function, BatchNormMask mask, std::int64_t rows,
                            std::int64_t channels, T* dz, float* dgamma, float* dbeta, float* partials,
                            unsigned* counters, const BatchNormPitches& pitches = {});

// dx [rows][channels] through the batch statistics, plus `add` if it is not null. dy: the gradient of y where there was
// no residual, or dz with function none. dx may be in place over dy, x or add. batch_rows: of the whole batch, whose
// dgamma and dbeta are given, where x is only a part of it; 0: rows.
template <class T>
void batch_norm_input_grad(cudaStream_t stream, const T* x, const T* dy, const BatchNormChannels& norm,
                           const float* dgamma, const float* dbeta, NormFunction function, std::int64_t rows,
                           std::int64_t channels, T* dx, const T* add = nullptr, const BatchNormPitches& pitches = {},
                           std::int64_t batch_rows = 0);

}  // namespace overtake::cuda
