#pragma once
// Embedding on the GPU: kernels/cpu/embedding.h. W, the type of the table, and T, of the activations: (float, float),
// (float, bf16) or (bf16, bf16). Calls only enqueue; arrays start at 16-byte boundaries.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/bf16.h"

namespace overtake::cuda {

// y [n, width] = table [vocabulary, width] at tokens [n]. *first_bad, in device memory, becomes the first position
// whose id is not in [0, vocabulary), its row of y then being 0, or -1 if all are good.
template <class W, class T>
void embedding_forward(cudaStream_t stream, const std::int32_t* tokens, const W* table, T* y, std::int64_t vocabulary,
                       std::int64_t width, std::int64_t n, std::int64_t* first_bad);

// First phase of the backward: the positions of each token. Those of token v, in increasing order, are
// positions[offsets[v]] to positions[offsets[v + 1] - 1]; offsets [vocabulary + 1], positions [n]. Positions of bad ids
// and of the id `padding` (-1: none), which is not trained, come after all others.
std::size_t embedding_index_scratch_bytes(std::int64_t n, std::int64_t vocabulary);
void embedding_index(cudaStream_t stream, const std::int32_t* tokens, std::int64_t n, std::int64_t vocabulary,
                     std::int32_t padding, std::int32_t* offsets, std::int32_t* positions, void* scratch);

// Second phase: dtable [vocabulary, width], row v = sum of dy[i] over the positions i of v, 0 if there is none. dy [n,
// width]. The order of a sum is a function of the tokens alone: runs of 64 neighbours in `positions`, then the runs.
std::size_t embedding_backward_scratch_bytes(std::int64_t n, std::int64_t width);
template <class T>
void embedding_backward(cudaStream_t stream, const std::int32_t* offsets, const std::int32_t* positions, const T* dy,
                        float* dtable, std::int64_t vocabulary, std::int64_t width, std::int64_t n, void* scratch);

}  // namespace overtake::cuda
