#pragma once
// Optimizer steps on the GPU, in place, for many tensors in one launch: kernels/cpu/optimizer.h. The gradient is
// multiplied by *grad_scale, in device memory, first (null: 1). Calls only enqueue; arrays start at 16-byte boundaries.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/bf16.h"
#include "kernels/cuda/step_values.h"

namespace overtake::cuda {

// What one update reads and writes; all arrays [count], in device memory.
struct UpdateTensor {
  const void* grad;  // float or bf16
  bool is_grad_bf16;
  float* weight;
  float* first;   // momentum or first moment; may be null if the step has none
  float* second;  // second moment; likewise
  bf16* copy;     // receives the new weight, rounded; may be null
  std::int64_t count;
};

// A part of at most kUpdateTile elements of a tensor: the work of one thread block.
inline constexpr std::int64_t kUpdateTile = 4096;
using UpdateTile = UpdateTensor;

// The table for the calls below, to be copied to device memory: made once, as long as the pointers stay.
std::vector<UpdateTile> cut_in_tiles(std::span<const UpdateTensor> tensors);

// The losses of the step, in device memory. A tile that finds one of them not finite changes nothing. A tile whose
// gradient (or *grad_scale) is not finite changes nothing either and makes all losses NaN, so that the host sees it.
struct StepLosses {
  static constexpr int kMost = 32;
  float* loss[kMost] = {};
  int count = 0;
};

// kernels::SgdStep and kernels::AdamWStep without what changes from step to step: that is read from *values, in device
// memory; AdamW counts steps from values->step + 1.
struct SgdSettings {
  float momentum;
  float weight_decay;
  bool nesterov;
};
struct AdamWSettings {
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
};

// tiles [tile_count], in device memory. Elementwise: how tensors are cut does not change the bits.
void sgd_update(cudaStream_t stream, const StepValues* values, const SgdSettings& sgd, const UpdateTile* tiles,
                std::int64_t tile_count, const float* grad_scale, const StepLosses& losses);
void adamw_update(cudaStream_t stream, const StepValues* values, const AdamWSettings& adamw, const UpdateTile* tiles,
                  std::int64_t tile_count, const float* grad_scale, const StepLosses& losses);

// Gradient clipping by global norm, first phase: partials[t] = sum of squares of the gradient of tile t.
void squared_norm_partials(cudaStream_t stream, const UpdateTile* tiles, std::int64_t tile_count, double* partials);

// Second phase: sums[i] = the sum of the partials of tensor i, which are those from firsts[i] to firsts[i + 1]; firsts
// [tensor_count + 1], in device memory.
void sums_of_partials(cudaStream_t stream, const double* partials, const std::int64_t* firsts,
                      std::int64_t tensor_count, double* sums);

// Third phase over sums[order[0]] to sums[order[count - 1]] (order, in device memory; null: as they lie): result[0] =
// the global norm, result[1] = min(1, max_norm / (norm + 1e-6)), the factor to pass as grad_scale; NaN if the norm is
// not finite. The result depends on the sums in this order alone.
void clip_factor(cudaStream_t stream, const double* sums, const std::int64_t* order, std::int64_t count, float max_norm,
                 float* result);

}  // namespace overtake::cuda
