#pragma once
// Batch normalisation of channels-last activations, seen as [rows][channels] with rows = N * H * W:
//   y = act((x - mean) * rstd * gamma + beta [+ residual]), act = none or relu.
// Training forward is reduce (chunks) -> statistics (channels) -> apply (rows); the gradients are
// grad_reduce (chunks) -> weight_grad (channels) -> input_grad (rows). See partial_sums.h for chunks.
// T is float or bf16.

#include <cstdint>

#include "kernels/cpu/partial_sums.h"

namespace overtake::kernels {

// Per channel, each [channels].
struct BatchNormChannels {
  const float *mean, *rstd, *gamma, *beta;
};

// How the gradient of y becomes dz, the gradient of the value before the activation.
enum class BatchNormMask {
  none,    // dz = dy: no activation, or dy is masked already
  from_x,  // relu without residual: dz = dy where the recomputed value is positive
  from_y,  // relu with residual: dz = dy where y is positive
};

// Floats of `partials` for the statistics: [row_chunks(rows)][2][channels] and an origin [channels].
std::int64_t batch_norm_partials(std::int64_t rows, std::int64_t channels);

// Floats of `partials` for the gradients: [row_chunks(rows)][2][channels].
std::int64_t batch_norm_grad_partials(std::int64_t rows, std::int64_t channels);

// Writes the mean and the sum of squared deviations of chunks [begin, end) of x: [rows][channels]. Means are relative
// to the first row of x, the origin, so that large values lose nothing; the origin is written with chunk 0.
template <class T>
void batch_norm_reduce(const T* x, std::int64_t rows, std::int64_t channels, float* partials, std::int64_t begin,
                       std::int64_t end);

// mean and rstd = 1 / sqrt(variance + epsilon) of channels [begin, end) from all chunks. running_mean and running_var,
// if not null, move by momentum towards the mean and the unbiased variance.
void batch_norm_statistics(const float* partials, std::int64_t rows, std::int64_t channels, float epsilon,
                           float momentum, float* mean, float* rstd, float* running_mean, float* running_var,
                           std::int64_t begin, std::int64_t end);

// Where the rows of several members make one batch: of each, moments [2][channels], the mean and the sum of squared
// deviations from it, of channels [begin, end) from all chunks ...
void batch_norm_moments(const float* partials, std::int64_t rows, std::int64_t channels, double* moments,
                        std::int64_t begin, std::int64_t end);

// ... and the statistics of all from the moments of each, [members][2][channels], in their order; rows: of each.
void batch_norm_joint_statistics(const double* moments, std::int64_t members, std::int64_t rows, std::int64_t channels,
                                 float epsilon, float momentum, float* mean, float* rstd, float* running_mean,
                                 float* running_var, std::int64_t begin, std::int64_t end);

// rstd for evaluation, where mean = running_mean: 1 / sqrt(running_var + epsilon) of channels [begin, end).
void batch_norm_running_rstd(const float* running_var, float epsilon, float* rstd, std::int64_t begin,
                             std::int64_t end);

// y of rows [begin, end). residual: [rows][channels] or null. y may be in place over x or residual.
template <class T>
void batch_norm_apply(const T* x, const T* residual, const BatchNormChannels& norm, std::int64_t channels, bool relu,
                      T* y, std::int64_t begin, std::int64_t end);

// Writes the sums of dz and of dz * (x - mean) of chunks [begin, end). y: [rows][channels], only read if mask is
// from_y. dz: [rows][channels], written if not null (the residual's gradient); may be in place over dy.
template <class T>
void batch_norm_grad_reduce(const T* x, const T* dy, const T* y, const BatchNormChannels& norm, BatchNormMask mask,
                            std::int64_t rows, std::int64_t channels, T* dz, float* partials, std::int64_t begin,
                            std::int64_t end);

// dgamma and dbeta of channels [begin, end) from all chunks, each if not null.
void batch_norm_weight_grad(const float* partials, std::int64_t rows, std::int64_t channels, const float* rstd,
                            float* dgamma, float* dbeta, std::int64_t begin, std::int64_t end);

// dx of rows [begin, end) through the statistics of a batch of so many rows in all, whose dgamma and dbeta are given.
// dy: the gradient of y with mask from_x or none, or dz with mask none. dx may be in place over dy or x.
template <class T>
void batch_norm_input_grad(const T* x, const T* dy, const BatchNormChannels& norm, const float* dgamma,
                           const float* dbeta, BatchNormMask mask, std::int64_t batch_rows, std::int64_t channels,
                           T* dx, std::int64_t begin, std::int64_t end);

}  // namespace overtake::kernels
