#pragma once
// Scaled dot-product attention, o = softmax(scale * q k^T + masks) v per (batch, head) pair, without ever storing an
// [Sq, Sk] matrix: probabilities are computed block by block, and again in the backward pass from the saved
// log-sum-exp. A unit is one (batch, head) pair, index b * heads + h; its bits do not depend on the range it is in.
//
// T is float or bf16. In bf16, probabilities and their gradients are rounded to bf16 before they enter a product.

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels {

struct AttentionShape {
  std::int64_t batch = 0, heads = 0, head_dim = 0;  // B, H, D
  std::int64_t queries = 0, keys = 0;               // Sq, Sk
  // Elements between consecutive positions of each tensor: H * D for [B, S, H, D], 3 * H * D for a packed qkv. A batch
  // entry is Sq (or Sk) such rows.
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;
  float scale = 1.0f;
  bool causal = false;  // query i sees keys j <= i + (Sk - Sq)
  bool operator==(const AttentionShape&) const = default;
};

// What the forward pass reads. key_mask is [B, Sk], 0 = masked out, or null. A query that sees no key gives a row of
// zeros, and takes and gives no gradient.
template <class T>
struct AttentionInputs {
  const T* q;                    // [B, Sq, H, D], rows q_stride apart
  const T* k;                    // [B, Sk, H, D], rows k_stride apart
  const T* v;                    // [B, Sk, H, D], rows v_stride apart
  const std::uint8_t* key_mask;  // [B, Sk] or null
};

// Where the gradients go, with the elements between their rows (so that dq, dk, dv may be one packed dqkv).
template <class T>
struct AttentionGrads {
  T* dq;  // [B, Sq, H, D]
  T* dk;  // [B, Sk, H, D]
  T* dv;  // [B, Sk, H, D]
  std::int64_t dq_stride, dk_stride, dv_stride;
};

// Bytes of scratch, 64-byte aligned, that one part (one concurrent call) needs, whatever its range of units.
template <class T>
std::int64_t attention_scratch_bytes(const AttentionShape& shape);
template <class T>
std::int64_t attention_grad_scratch_bytes(const AttentionShape& shape);

// o [B, Sq, H, D], rows o_stride apart; lse [B, H, Sq] float, -infinity for a query that sees no key.
template <class T>
void attention_forward(const AttentionShape& shape, const AttentionInputs<T>& in, T* o, float* lse, void* scratch,
                       std::int64_t unit_begin, std::int64_t unit_end);

// Writes dq, dk and dv of the units (all of them: no accumulation). o, lse are the forward's; o_grad has o's layout.
template <class T>
void attention_input_grad(const AttentionShape& shape, const AttentionInputs<T>& in, const T* o, const float* lse,
                          const T* o_grad, const AttentionGrads<T>& grads, void* scratch, std::int64_t unit_begin,
                          std::int64_t unit_end);

}  // namespace overtake::kernels
