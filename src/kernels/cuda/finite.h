#pragma once
// Search for numbers that are not finite, on the GPU. T is float or bf16. Calls only enqueue.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"

namespace overtake::cuda {

// Rows of `width` elements that start `pitch` apart. pitch 0: the elements follow each other.
struct FiniteRows {
  std::int64_t width = 0, pitch = 0;
};

// *flag, in device memory, becomes 1 if an element of x [count] is NaN or infinite, else it stays as it is.
template <class T>
void mark_non_finite(cudaStream_t stream, const T* x, std::int64_t count, std::uint32_t* flag,
                     const FiniteRows& rows = {});

}  // namespace overtake::cuda
