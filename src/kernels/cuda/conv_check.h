#pragma once
// Whether a library's convolution is right, by some elements of its result. Not all are: for 16 x 16 filters over eight
// channels of bfloat16 at stride 16, with a bias, the plan that cuDNN 9.19 thinks best gives wrong sums.

#include "kernels/cuda/conv2d.h"

namespace overtake::cuda {

// Waits for the stream. Operands as in Conv::run, of values around 1; true if all of a few hundred elements of `out`
// are what plain sums give, to the precision of the element type.
bool is_right(cudaStream_t stream, const ConvKind& kind, const void* a, const void* b, const float* bias,
              const void* out);

}  // namespace overtake::cuda
