#pragma once
// What the forward and the backward pass of attention share: one (batch, head) pair, its masks, and products of its
// blocks. Internal to attention.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_blocks.h"

namespace overtake::kernels::attention_detail {

inline constexpr float kMasked = -std::numeric_limits<float>::infinity();

inline std::int64_t block_count(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

// Rows of one tensor that belong to one (batch, head) pair: element (i, d) is first[i * stride + d].
template <class T>
struct HeadRows {
  T* first;
  std::int64_t stride;
  T* row(std::int64_t i) const { return first + i * stride; }
};

// The rows of unit b * heads + h of a tensor [B, positions, H, D] with rows `stride` apart.
template <class T>
HeadRows<T> head_rows(const AttentionShape& s, T* tensor, std::int64_t positions, std::int64_t stride,
                      std::int64_t unit) {
  const std::int64_t b = unit / s.heads, h = unit % s.heads;
  return {tensor + b * positions * stride + h * s.head_dim, stride};
}

// Number of keys that query i may see, before the key mask.
inline std::int64_t visible_keys(const AttentionShape& s, std::int64_t i) {
  return s.causal ? std::clamp(i + 1 + s.keys - s.queries, std::int64_t{0}, s.keys) : s.keys;
}

// Of the block of `cols` keys from `first_key` on, how many must be computed for queries up to `last_query`: those it
// sees, rounded up so that vectors are full.
inline std::int64_t computed_keys(const AttentionShape& s, std::int64_t last_query, std::int64_t first_key,
                                  std::int64_t cols) {
  const std::int64_t seen = std::max(visible_keys(s, last_query) - first_key, std::int64_t{0});
  return std::min(cols, block_count(seen, 32) * 32);
}

// bias[Sk]: 0 for a key that may be seen, kMasked for one that is masked out.
inline void fill_mask_bias(const AttentionShape& s, const std::uint8_t* key_mask, std::int64_t unit, float* bias) {
  const std::uint8_t* mask = key_mask + unit / s.heads * s.keys;
  for (std::int64_t j = 0; j < s.keys; ++j) bias[j] = mask[j] != 0 ? 0.0f : kMasked;
}

// Adds the masks to one row of scores of query i, keys [first_key, first_key + cols). `bias` may be null.
inline void mask_scores(const AttentionShape& s, const float* bias, std::int64_t i, std::int64_t first_key,
                        std::int64_t cols, float* scores) {
  const std::int64_t seen = std::clamp(visible_keys(s, i) - first_key, std::int64_t{0}, cols);
  std::fill(scores + seen, scores + cols, kMasked);
  if (bias == nullptr) return;
#pragma omp simd
  for (std::int64_t j = 0; j < cols; ++j) scores[j] += bias[first_key + j];
}

// A right-hand factor packed for [k, n], of which a product may use the upper left part.
struct Packed {
  const void* data;
  std::int64_t k, n;
};

// c[m, n] = alpha * op(a)[m, k] packed[:k, :n], or += where `accumulate`.
template <class T>
void multiply(bool trans_a, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const T* a, std::int64_t lda,
              const Packed& b, bool accumulate, float* c, std::int64_t ldc) {
  gemm_detail::Factors<T> factors;
  factors.trans_a = trans_a;
  factors.m = m, factors.n = n, factors.k = k;
  factors.alpha = alpha;
  factors.a = a, factors.lda = lda;
  factors.packed_b = b.data, factors.packed_k = b.k, factors.packed_n = b.n;
  gemm_detail::multiply_blocks<T>(factors, accumulate, c, ldc, {});
}

}  // namespace overtake::kernels::attention_detail
