#pragma once
// Embedding: rows of a table by token id. W, the type of the table, and T, of the activations: (float, float),
// (float, bf16) or (bf16, bf16).

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels {

// y [n, width] = table [vocabulary, width] at tokens [n]. Unit: position. Returns the first position in the range whose
// id is not in [0, vocabulary), its row of y then being 0, or -1 if all are good.
template <class W, class T>
std::int64_t embedding_forward(const std::int32_t* tokens, const W* table, T* y, std::int64_t vocabulary,
                               std::int64_t width, std::int64_t begin, std::int64_t end);

// First phase of the backward: the positions of each token, by counting sort. Those of token v, in increasing order,
// are positions[offsets[v]] to positions[offsets[v + 1] - 1]; offsets [vocabulary + 1], positions [n]. One thread.
// Positions of bad ids (the forward reported them) and of the id `padding` (-1: none), which is not trained, are left
// out.
void embedding_index(const std::int32_t* tokens, std::int64_t n, std::int64_t vocabulary, std::int32_t padding,
                     std::int32_t* offsets, std::int32_t* positions);

// Second phase: dtable [vocabulary, width], row v = sum of dy[i] over the positions i of v in increasing order, 0 if
// there is none. dy [n, width]. Unit: the u-th block of 256 columns of the table, counted twice over: row by row for
// zeros, which keeps them contiguous, and column by column for sums, which keeps parts balanced when few tokens make up
// most of the text.
std::int64_t embedding_backward_units(std::int64_t vocabulary, std::int64_t width);
template <class T>
void embedding_backward(const std::int32_t* offsets, const std::int32_t* positions, const T* dy, float* dtable,
                        std::int64_t vocabulary, std::int64_t width, std::int64_t begin, std::int64_t end);

}  // namespace overtake::kernels
