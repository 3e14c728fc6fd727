#pragma once
// Short elementwise programs on the GPU: kernels/cpu/chain.h. T is float or bf16. Calls only enqueue.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "base/bf16.h"
#include "kernels/cpu/chain.h"

namespace overtake::cuda {

using kernels::ChainProgram;

// out[j] [count] = the program's result j of in[0], in[1], ... May be in place: an array of out may be one of in that
// has `count` elements. All arrays at 16-byte boundaries; count below 2^31.
template <class T>
void chain(cudaStream_t stream, const ChainProgram& program, std::span<const T* const> in, std::span<T* const> out,
           std::int64_t count);

}  // namespace overtake::cuda
