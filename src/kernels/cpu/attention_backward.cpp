#include <cstddef>
#include <type_traits>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_block.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"

namespace overtake::kernels {
namespace {

using namespace attention_detail;

constexpr std::int64_t kQueries = 128;  // rows of one block of probabilities
constexpr std::int64_t kKeys = 128;     // columns of one block of probabilities

template <class T>
struct BackwardScratch {
  float* p;     // [kQueries, kKeys] probabilities
  float* ds;    // [kQueries, kKeys] gradients of the scores
  T* p_factor;  // p and ds as factors of products: rounded to T, or the same memory
  T* ds_factor;
  float* dq;                   // [Sq, D]
  float* dk;                   // [kKeys, D]
  float* dv;                   // [kKeys, D]
  float* delta;                // [Sq] dot products of the rows of o and o's gradient
  float* mask_bias;            // [Sk]
  std::byte* k_transposed;     // packed for [D, kKeys]
  std::byte* v_transposed;     // packed for [D, kKeys]
  std::byte* k_plain;          // packed for [kKeys, D]
  std::int64_t q_block_bytes;  // of one packed block of queries
  std::byte* q_blocks;         // each packed for [kQueries, D]
  std::byte* o_grad_blocks;    // each packed for [kQueries, D]

  BackwardScratch(const AttentionShape& s, Scratch& scratch) {
    const std::int64_t blocks = block_count(s.queries, kQueries);
    p = scratch.take<float>(kQueries * kKeys);
    ds = scratch.take<float>(kQueries * kKeys);
    if constexpr (std::is_same_v<T, float>) {
      p_factor = p;
      ds_factor = ds;
    } else {
      p_factor = scratch.take<T>(kQueries * kKeys);
      ds_factor = scratch.take<T>(kQueries * kKeys);
    }
    dq = scratch.take<float>(s.queries * s.head_dim);
    dk = scratch.take<float>(kKeys * s.head_dim);
    dv = scratch.take<float>(kKeys * s.head_dim);
    delta = scratch.take<float>(s.queries);
    mask_bias = scratch.take<float>(s.keys);
    k_transposed = scratch.take<std::byte>(packed_b_bytes<T>(s.head_dim, kKeys));
    v_transposed = scratch.take<std::byte>(packed_b_bytes<T>(s.head_dim, kKeys));
    k_plain = scratch.take<std::byte>(packed_b_bytes<T>(kKeys, s.head_dim));
    q_block_bytes = packed_b_bytes<T>(kQueries, s.head_dim);
    q_blocks = scratch.take<std::byte>(blocks * q_block_bytes);
    o_grad_blocks = scratch.take<std::byte>(blocks * q_block_bytes);
  }
};

// The tensors of one unit.
template <class T>
struct Head {
  HeadRows<const T> q, k, v, o, o_grad;
  HeadRows<T> dq, dk, dv;
  const float* lse;   // [Sq]
  const float* bias;  // [Sk] or null
};

// What does not depend on the block of keys: packed queries and gradients of o, delta, and zeros in dq.
template <class T>
void prepare_queries(const AttentionShape& s, const Head<T>& head, const BackwardScratch<T>& scratch) {
  std::fill_n(scratch.dq, s.queries * s.head_dim, 0.0f);
  for (std::int64_t block = 0, first = 0; first < s.queries; ++block, first += kQueries) {
    const std::int64_t rows = std::min(kQueries, s.queries - first), at = block * scratch.q_block_bytes;
    pack_b(false, rows, s.head_dim, head.q.row(first), head.q.stride, scratch.q_blocks + at);
    pack_b(false, rows, s.head_dim, head.o_grad.row(first), head.o_grad.stride, scratch.o_grad_blocks + at);
  }
  for (std::int64_t i = 0; i < s.queries; ++i) {
    const T* o = head.o.row(i);
    const T* grad = head.o_grad.row(i);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t d = 0; d < s.head_dim; ++d) sum += to_float(o[d]) * to_float(grad[d]);
    scratch.delta[i] = sum;
  }
}

// p[cols], in: scores with their masks, out: probabilities (0 where masked, as exp_fast(-infinity) is 0).
void scores_to_probabilities(float* p, std::int64_t cols, float lse) {
  const float base = lse == kMasked ? 0.0f : lse;
#pragma omp simd
  for (std::int64_t j = 0; j < cols; ++j) p[j] = exp_fast(p[j] - base);
}

// ds[cols], in: gradients of the probabilities, out: gradients of the unscaled scores q k^T; both also as factors.
template <class T>
void score_gradients(const float* p, float* ds, T* p_factor, T* ds_factor, std::int64_t cols, float delta,
                     float scale) {
#pragma omp simd
  for (std::int64_t j = 0; j < cols; ++j) ds[j] = p[j] == 0.0f ? 0.0f : p[j] * (ds[j] - delta) * scale;
  if constexpr (!std::is_same_v<T, float>) {
#pragma omp simd
    for (std::int64_t j = 0; j < cols; ++j) {
      p_factor[j] = from_float<T>(p[j]);
      ds_factor[j] = from_float<T>(ds[j]);
    }
  }
}

// Adds what one block of queries gives to dq, and to dk and dv of the block of `keys` keys from first_key on.
template <class T>
void add_block(const AttentionShape& s, const Head<T>& head, std::int64_t block, std::int64_t first_key,
               std::int64_t keys, const BackwardScratch<T>& scratch) {
  const std::int64_t first = block * kQueries, rows = std::min(kQueries, s.queries - first), depth = s.head_dim;
  const std::int64_t cols = computed_keys(s, first + rows - 1, first_key, keys);
  if (cols == 0) return;
  multiply<T>(false, rows, cols, depth, s.scale, head.q.row(first), head.q.stride, {scratch.k_transposed, depth, keys},
              false, scratch.p, kKeys);
  multiply<T>(false, rows, cols, depth, 1.0f, head.o_grad.row(first), head.o_grad.stride,
              {scratch.v_transposed, depth, keys}, false, scratch.ds, kKeys);
  for (std::int64_t i = 0; i < rows; ++i) {
    float* p = scratch.p + i * kKeys;
    mask_scores(s, head.bias, first + i, first_key, cols, p);
    scores_to_probabilities(p, cols, head.lse[first + i]);
    score_gradients<T>(p, scratch.ds + i * kKeys, scratch.p_factor + i * kKeys, scratch.ds_factor + i * kKeys, cols,
                       scratch.delta[first + i], s.scale);
  }
  const std::int64_t at = block * scratch.q_block_bytes;
  multiply<T>(true, cols, depth, rows, 1.0f, scratch.p_factor, kKeys, {scratch.o_grad_blocks + at, rows, depth}, true,
              scratch.dv, depth);
  multiply<T>(true, cols, depth, rows, 1.0f, scratch.ds_factor, kKeys, {scratch.q_blocks + at, rows, depth}, true,
              scratch.dk, depth);
  multiply<T>(false, rows, depth, cols, 1.0f, scratch.ds_factor, kKeys, {scratch.k_plain, keys, depth}, true,
              scratch.dq + first * depth, depth);
}

template <class T>
void store_rows(const float* from, std::int64_t rows, std::int64_t depth, HeadRows<T> to, std::int64_t first) {
  for (std::int64_t i = 0; i < rows; ++i) {
    T* row = to.row(first + i);
#pragma omp simd
    for (std::int64_t d = 0; d < depth; ++d) row[d] = from_float<T>(from[i * depth + d]);
  }
}

template <class T>
void differentiate_head(const AttentionShape& s, const Head<T>& head, const BackwardScratch<T>& scratch) {
  prepare_queries(s, head, scratch);
  for (std::int64_t first_key = 0; first_key < s.keys; first_key += kKeys) {
    const std::int64_t keys = std::min(kKeys, s.keys - first_key);
    pack_b(true, s.head_dim, keys, head.k.row(first_key), head.k.stride, scratch.k_transposed);
    pack_b(true, s.head_dim, keys, head.v.row(first_key), head.v.stride, scratch.v_transposed);
    pack_b(false, keys, s.head_dim, head.k.row(first_key), head.k.stride, scratch.k_plain);
    std::fill_n(scratch.dk, keys * s.head_dim, 0.0f);
    std::fill_n(scratch.dv, keys * s.head_dim, 0.0f);
    for (std::int64_t block = 0; block < block_count(s.queries, kQueries); ++block) {
      add_block(s, head, block, first_key, keys, scratch);
    }
    store_rows(scratch.dk, keys, s.head_dim, head.dk, first_key);
    store_rows(scratch.dv, keys, s.head_dim, head.dv, first_key);
  }
  store_rows(scratch.dq, s.queries, s.head_dim, head.dq, 0);
}

}  // namespace

template <class T>
std::int64_t attention_grad_scratch_bytes(const AttentionShape& shape) {
  Scratch measure(nullptr);
  BackwardScratch<T>(shape, measure);
  return measure.used();
}

template <class T>
void attention_input_grad(const AttentionShape& s, const AttentionInputs<T>& in, const T* o, const float* lse,
                          const T* o_grad, const AttentionGrads<T>& grads, void* memory, std::int64_t unit_begin,
                          std::int64_t unit_end) {
  Scratch pieces(memory);
  const BackwardScratch<T> scratch(s, pieces);
  for (std::int64_t unit = unit_begin; unit < unit_end; ++unit) {
    if (in.key_mask != nullptr) fill_mask_bias(s, in.key_mask, unit, scratch.mask_bias);
    const Head<T> head{head_rows(s, in.q, s.queries, s.q_stride, unit),
                       head_rows(s, in.k, s.keys, s.k_stride, unit),
                       head_rows(s, in.v, s.keys, s.v_stride, unit),
                       head_rows(s, o, s.queries, s.o_stride, unit),
                       head_rows(s, o_grad, s.queries, s.o_stride, unit),
                       head_rows(s, grads.dq, s.queries, grads.dq_stride, unit),
                       head_rows(s, grads.dk, s.keys, grads.dk_stride, unit),
                       head_rows(s, grads.dv, s.keys, grads.dv_stride, unit),
                       lse + unit * s.queries,
                       in.key_mask != nullptr ? scratch.mask_bias : nullptr};
    differentiate_head(s, head, scratch);
  }
}

template std::int64_t attention_grad_scratch_bytes<float>(const AttentionShape&);
template std::int64_t attention_grad_scratch_bytes<bf16>(const AttentionShape&);
template void attention_input_grad(const AttentionShape&, const AttentionInputs<float>&, const float*, const float*,
                                   const float*, const AttentionGrads<float>&, void*, std::int64_t, std::int64_t);
template void attention_input_grad(const AttentionShape&, const AttentionInputs<bf16>&, const bf16*, const float*,
                                   const bf16*, const AttentionGrads<bf16>&, void*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
