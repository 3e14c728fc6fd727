#include "kernels/cpu/attention.h"

#include <cmath>
#include <type_traits>

#include "kernels/cpu/attention_block.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"

namespace overtake::kernels {
namespace {

using namespace attention_detail;

constexpr std::int64_t kQueries = 128;  // rows of one block of scores
constexpr std::int64_t kKeys = 256;     // columns of one block of scores

template <class T>
struct ForwardScratch {
  float* scores;                              // [kQueries, kKeys]
  T* probabilities;                           // [kQueries, kKeys]; the scores' memory where T is float
  float* out;                                 // [kQueries, D], not yet divided by the sum
  float* row_max;                             // [kQueries]
  float* row_sum;                             // [kQueries]
  float* mask_bias;                           // [Sk]
  std::int64_t k_block_bytes, v_block_bytes;  // of one packed block of keys
  std::byte* k_blocks;                        // k^T, each packed for [D, kKeys]
  std::byte* v_blocks;                        // v, each packed for [kKeys, D]

  ForwardScratch(const AttentionShape& s, Scratch& scratch) {
    const std::int64_t blocks = block_count(s.keys, kKeys);
    k_block_bytes = packed_b_bytes<T>(s.head_dim, kKeys);
    v_block_bytes = packed_b_bytes<T>(kKeys, s.head_dim);
    scores = scratch.take<float>(kQueries * kKeys);
    if constexpr (std::is_same_v<T, float>) {
      probabilities = scores;
    } else {
      probabilities = scratch.take<T>(kQueries * kKeys);
    }
    out = scratch.take<float>(kQueries * s.head_dim);
    row_max = scratch.take<float>(kQueries);
    row_sum = scratch.take<float>(kQueries);
    mask_bias = scratch.take<float>(s.keys);
    k_blocks = scratch.take<std::byte>(blocks * k_block_bytes);
    v_blocks = scratch.take<std::byte>(blocks * v_block_bytes);
  }
};

// One row of a block of scores joins the running softmax: scores[cols] become probabilities relative to the new maximum
// (0 where masked, as exp_fast(-infinity) is 0). Returns the factor by which what was summed up before must be scaled.
float join_softmax(float* scores, std::int64_t cols, float& row_max, float& row_sum) {
  float highest = row_max;
#pragma omp simd reduction(max : highest)
  for (std::int64_t j = 0; j < cols; ++j) highest = scores[j] > highest ? scores[j] : highest;
  const float base = highest == kMasked ? 0.0f : highest;
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < cols; ++j) {
    scores[j] = exp_fast(scores[j] - base);
    sum += scores[j];
  }
  const float keep = exp_fast(row_max - base);
  row_max = highest;
  row_sum = row_sum * keep + sum;
  return keep;
}

// Rounds one row of probabilities to a factor of a product. A loop of its own: GCC 12.2 sums wrongly where a reduction,
// a choice around exp_fast and a store of bf16 meet in one loop.
template <class T>
void round_row(const float* from, T* to, std::int64_t cols) {
  if constexpr (!std::is_same_v<T, float>) {
#pragma omp simd
    for (std::int64_t j = 0; j < cols; ++j) to[j] = from_float<T>(from[j]);
  }
}

// Packs k and v of the unit, block by block of keys.
template <class T>
void pack_keys(const AttentionShape& s, HeadRows<const T> k, HeadRows<const T> v, const ForwardScratch<T>& scratch) {
  for (std::int64_t block = 0, first = 0; first < s.keys; ++block, first += kKeys) {
    const std::int64_t cols = std::min(kKeys, s.keys - first);
    pack_b(true, s.head_dim, cols, k.row(first), k.stride, scratch.k_blocks + block * scratch.k_block_bytes);
    pack_b(false, cols, s.head_dim, v.row(first), v.stride, scratch.v_blocks + block * scratch.v_block_bytes);
  }
}

// Adds the keys of one block to `out` and the running softmax of queries [first_query, first_query + rows).
template <class T>
void attend_block(const AttentionShape& s, HeadRows<const T> q, const float* bias, std::int64_t first_query,
                  std::int64_t rows, std::int64_t block, const ForwardScratch<T>& scratch) {
  const std::int64_t first_key = block * kKeys, keys = std::min(kKeys, s.keys - first_key);
  const std::int64_t cols = computed_keys(s, first_query + rows - 1, first_key, keys);
  const Packed k_block{scratch.k_blocks + block * scratch.k_block_bytes, s.head_dim, keys};
  const Packed v_block{scratch.v_blocks + block * scratch.v_block_bytes, keys, s.head_dim};
  multiply<T>(false, rows, cols, s.head_dim, s.scale, q.row(first_query), q.stride, k_block, false, scratch.scores,
              kKeys);
  for (std::int64_t i = 0; i < rows; ++i) {
    float* scores = scratch.scores + i * kKeys;
    mask_scores(s, bias, first_query + i, first_key, cols, scores);
    const float keep = join_softmax(scores, cols, scratch.row_max[i], scratch.row_sum[i]);
    round_row(scores, scratch.probabilities + i * kKeys, cols);
    float* out = scratch.out + i * s.head_dim;
    if (block == 0 || keep == 1.0f) continue;
    for (std::int64_t d = 0; d < s.head_dim; ++d) out[d] *= keep;
  }
  multiply<T>(false, rows, s.head_dim, cols, 1.0f, scratch.probabilities, kKeys, v_block, block > 0, scratch.out,
              s.head_dim);
}

// o and lse of queries [first_query, first_query + rows).
template <class T>
void attend_queries(const AttentionShape& s, HeadRows<const T> q, const float* bias, std::int64_t first_query,
                    std::int64_t rows, HeadRows<T> o, float* lse, const ForwardScratch<T>& scratch) {
  std::fill_n(scratch.row_max, rows, kMasked);
  std::fill_n(scratch.row_sum, rows, 0.0f);
  const std::int64_t blocks = block_count(visible_keys(s, first_query + rows - 1), kKeys);
  for (std::int64_t block = 0; block < blocks; ++block) {
    attend_block<T>(s, q, bias, first_query, rows, block, scratch);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const bool sees_nothing = scratch.row_max[i] == kMasked;
    const float scale = sees_nothing ? 0.0f : 1.0f / scratch.row_sum[i];
    const float* from = scratch.out + i * s.head_dim;
    T* to = o.row(first_query + i);
    for (std::int64_t d = 0; d < s.head_dim; ++d) to[d] = from_float<T>(sees_nothing ? 0.0f : from[d] * scale);
    lse[first_query + i] = sees_nothing ? kMasked : scratch.row_max[i] + std::log(scratch.row_sum[i]);
  }
}

}  // namespace

template <class T>
std::int64_t attention_scratch_bytes(const AttentionShape& shape) {
  Scratch measure(nullptr);
  ForwardScratch<T>(shape, measure);
  return measure.used();
}

template <class T>
void attention_forward(const AttentionShape& s, const AttentionInputs<T>& in, T* o, float* lse, void* memory,
                       std::int64_t unit_begin, std::int64_t unit_end) {
  Scratch pieces(memory);
  const ForwardScratch<T> scratch(s, pieces);
  for (std::int64_t unit = unit_begin; unit < unit_end; ++unit) {
    pack_keys<T>(s, head_rows(s, in.k, s.keys, s.k_stride, unit), head_rows(s, in.v, s.keys, s.v_stride, unit),
                 scratch);
    const float* bias = in.key_mask != nullptr ? scratch.mask_bias : nullptr;
    if (in.key_mask != nullptr) fill_mask_bias(s, in.key_mask, unit, scratch.mask_bias);
    for (std::int64_t first = 0; first < s.queries; first += kQueries) {
      attend_queries<T>(s, head_rows(s, in.q, s.queries, s.q_stride, unit), bias, first,
                        std::min(kQueries, s.queries - first), head_rows(s, o, s.queries, s.o_stride, unit),
                        lse + unit * s.queries, scratch);
    }
  }
}

template std::int64_t attention_scratch_bytes<float>(const AttentionShape&);
template std::int64_t attention_scratch_bytes<bf16>(const AttentionShape&);
template void attention_forward(const AttentionShape&, const AttentionInputs<float>&, float*, float*, void*,
                                std::int64_t, std::int64_t);
template void attention_forward(const AttentionShape&, const AttentionInputs<bf16>&, bf16*, float*, void*, std::int64_t,
                                std::int64_t);

}  // namespace overtake::kernels
