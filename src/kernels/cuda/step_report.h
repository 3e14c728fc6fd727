#pragma once
// The two ends of a step: what changes from step to step goes into device memory, and the few numbers the host wants to
// see come out of it.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/step_values.h"

namespace overtake::cuda {

// *to = values, in device memory. The values go with the launch.
void set_step_values(cudaStream_t stream, const StepValues& values, StepValues* to);

// to [slots][count] 32-bit words, row (values->report % slots) of it: word i is read from *from[i], in device memory;
// `to` may be pinned host memory.
void report_words(cudaStream_t stream, const StepValues* values, const std::uint32_t* const* from, int count, int slots,
                  std::uint32_t* to);

}  // namespace overtake::cuda
