#pragma once
// What goes with cuDNN's attention so that key masks mean what they mean in kernels/cpu/attention.h. cuDNN adds a bias
// to the scores; a large negative one hides a key, but where all keys of a query are hidden it gives their mean.
// Internal to attention.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "kernels/cpu/attention.h"

namespace overtake::cuda {

// Elements from one row of a bias to the next.
std::int64_t attention_bias_stride(std::int64_t keys);

// bias [B, stride]: 0 for a key that key_mask [B, Sk] shows, about -1e30 for one that it hides. first_shown [B]: the
// first key it shows, Sk if there is none.
void attention_mask_bias(cudaStream_t stream, const kernels::AttentionShape& shape, const std::uint8_t* key_mask,
                         bf16* bias, std::int32_t* first_shown);

// The same bias for every query, [B, Sq, stride], and finite_lse, which is lse [B, H, Sq] with 1e30 for -infinity: that
// makes all probabilities of the query 0.
void attention_mask_bias_backward(cudaStream_t stream, const kernels::AttentionShape& shape,
                                  const std::uint8_t* key_mask, const float* lse, bf16* bias, float* finite_lse);

// o = 0 and lse = -infinity for the queries that see no key.
void attention_clear_blind(cudaStream_t stream, const kernels::AttentionShape& shape, const std::int32_t* first_shown,
                           bf16* o, float* lse);

}  // namespace overtake::cuda
