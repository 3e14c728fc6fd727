#pragma once
// Optimizer steps on flat float arrays on the GPU, in place: kernels/cpu/optimizer.h. The gradient is multiplied by
// *grad_scale, in device memory, first (null: 1). Calls only enqueue; arrays start at 16-byte boundaries.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/optimizer.h"

namespace overtake::cuda {

using kernels::AdamWStep;
using kernels::SgdStep;

// grad, weight, momentum [count].
void sgd_update(cudaStream_t stream, const SgdStep& sgd, const float* grad, const float* grad_scale, float* weight,
                float* momentum, std::int64_t count);

// grad, weight, first_moment, second_moment [count].
void adamw_update(cudaStream_t stream, const AdamWStep& adamw, const float* grad, const float* grad_scale,
                  float* weight, float* first_moment, float* second_moment, std::int64_t count);

// Gradient clipping by global norm, first phase: partials[b] = sum of squares of elements [1024 b, 1024 (b + 1)) of
// grad [count], kernels::blocks_of(count) of them.
void squared_norm_partials(cudaStream_t stream, const float* grad, double* partials, std::int64_t count);

// Second phase over all partials: result[0] = the global norm, result[1] = min(1, max_norm / (norm + 1e-6)), the factor
// to pass as grad_scale; NaN if the norm is.
void clip_factor(cudaStream_t stream, const double* partials, std::int64_t partial_count, float max_norm,
                 float* result);

// Many tensors in one launch. `first` is the momentum or the first moment, `second` the second moment; what the step
// does not read may be null.
struct UpdateTensor {
  const float* grad;
  float* weight;
  float* first;
  float* second;
  std::int64_t count;
};

// A part of at most kUpdateTile elements of a tensor: the work of one thread block.
inline constexpr std::int64_t kUpdateTile = 4096;
struct UpdateTile {
  const float* grad;
  float* weight;
  float* first;
  float* second;
  std::int64_t count;
};

// The table for the calls below, to be copied to device memory: made once, as long as the pointers stay.
std::vector<UpdateTile> cut_in_tiles(std::span<const UpdateTensor> tensors);

// tiles [tile_count], in device memory.
void sgd_update(cudaStream_t stream, const SgdStep& sgd, const UpdateTile* tiles, std::int64_t tile_count,
                const float* grad_scale);
void adamw_update(cudaStream_t stream, const AdamWStep& adamw, const UpdateTile* tiles, std::int64_t tile_count,
                  const float* grad_scale);

// partials[t] = sum of squares of the gradient of tile t.
void squared_norm_partials(cudaStream_t stream, const UpdateTile* tiles, std::int64_t tile_count, double* partials);

}  // namespace overtake::cuda
