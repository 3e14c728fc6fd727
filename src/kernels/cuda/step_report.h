#pragma once
// The two ends of a step: what changes from step to step goes into device memory, and the few numbers the host wants to
// see come out of it.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/step_values.h"

namespace overtake::cuda {

// to [2] = values and last, those of the step before, in device memory. The values go with the launch.
void set_step_values(cudaStream_t stream, const StepValues& values, const StepValues& last, StepValues* to);

// to [slots][count] 32-bit words, row (values->report % slots) of it: word i is read from *from[i], in device memory;
// `to` may be pinned host memory.
void report_words(cudaStream_t stream, const StepValues* values, const std::uint32_t* const* from, int count, int slots,
                  std::uint32_t* to);

// carried [3 * losses] = the words of from[0] to from[3 * losses - 1], the metrics of the losses. Where a loss that was
// carried over (every third word) is not finite any more, and `was_finite` [losses] says that it once was, the loss of
// this step becomes NaN first. Then was_finite is that of what is carried now.
void carry_losses(cudaStream_t stream, float* const* from, int losses, float* carried, std::uint32_t* was_finite);

}  // namespace overtake::cuda
