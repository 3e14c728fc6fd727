#pragma once
// Attention by our own kernels: any type, head size and strides. Scores are computed tile by tile and never stored; the
// backward pass computes them again, once for dq and once for dk and dv, so that nothing is added up across blocks.
// Internal to attention.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/cpu/attention.h"

namespace overtake::cuda {

using kernels::AttentionGrads;
using kernels::AttentionInputs;
using kernels::AttentionShape;

// Lets the kernels for the shape use as much shared memory as they need; once per device, before they are run.
template <class T>
void attention_plain_prepare(const AttentionShape& shape);

// o [B, Sq, H, D], lse [B, H, Sq]: as kernels/cpu/attention.h.
template <class T>
void attention_plain_forward(cudaStream_t stream, const AttentionShape& shape, const AttentionInputs<T>& in, T* o,
                             float* lse);

// delta: memory for [B, H, Sq] floats.
template <class T>
void attention_plain_backward(cudaStream_t stream, const AttentionShape& shape, const AttentionInputs<T>& in,
                              const T* o, const float* lse, const T* o_grad, const AttentionGrads<T>& grads,
                              float* delta);

}  // namespace overtake::cuda
