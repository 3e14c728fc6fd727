#include "kernels/cuda/attention_plain.h"

#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/group_reduce.cuh"
#include "kernels/cuda/launch.h"

namespace overtake::cuda {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// How a shape is cut: C columns of a head at a time, V elements of one access. A head of more than C columns is several
// blocks, each of which computes the scores over all columns and a result of C columns.
template <class T, int columns, int vector>
struct Cut {
  static constexpr int C = columns, V = vector;
  static constexpr int kBlocks = C == 64 ? 2 : 1;  // on a multiprocessor, as far as registers decide
  static constexpr std::size_t kForwardBytes = sizeof(float) * (3 * kTileFloats<C> + kTileFloats<kTile>);
  static constexpr std::size_t kQueryBytes = sizeof(float) * (4 * kTileFloats<C> + kTileFloats<kTile> + kTile);
  static constexpr std::size_t kKeyBytes = sizeof(float) * (4 * kTileFloats<C> + 2 * kTileFloats<kTile>);
};

// One tensor of one head: [positions][head_dim], rows `stride` apart.
template <class T>
struct Rows {
  T* first;
  std::int64_t stride;

  template <class Shape>
  __device__ Rows(const Shape& s, T* tensor, std::int64_t positions, std::int64_t row_stride, int unit)
      : first(tensor + unit / s.heads * positions * row_stride + unit % s.heads * s.head_dim), stride(row_stride) {}
  __device__ T* at(int row, int column) const { return first + row * stride + column; }
};

// The columns of the head that a block multiplies next. Its own ones come last, so that they stay in shared memory.
struct Columns {
  int first, count, depth;

  __device__ Columns(const AttentionShape& s, int C, int turn) {
    const int chunks = static_cast<int>(gridDim.y), own = static_cast<int>(blockIdx.y);
    first = (own + 1 + turn) % chunks * C;
    count = min(C, static_cast<int>(s.head_dim) - first);
    depth = (count + 3) / 4 * 4;
  }
};

// Number of keys that query i may see, before the key mask; none if there is no such query.
__device__ int visible_keys(const AttentionShape& s, int i) {
  if (i >= s.queries) return 0;
  if (!s.causal) return static_cast<int>(s.keys);
  return static_cast<int>(min(max(i + 1 + s.keys - s.queries, std::int64_t{0}), s.keys));
}

// Whether the key exists and the mask shows it.
__device__ bool shown(const AttentionShape& s, const std::uint8_t* key_mask, int unit, int key) {
  return key < s.keys && (key_mask == nullptr || key_mask[unit / s.heads * s.keys + key] != 0);
}

// As a factor of a product of T.
template <class T>
__device__ float rounded(float x) {
  return access::widen(access::narrow<T>(x));
}

// One block per tile of queries, the longest (of a causal mask) first.
template <class T, class K>
__global__ void __launch_bounds__(kTileThreads, K::kBlocks)
    attention_forward_kernel(AttentionShape s, AttentionInputs<T> in, T* o, float* lse) {
  constexpr int C = K::C, V = K::V;
  extern __shared__ float4 shared[];
  float* const q_tile = reinterpret_cast<float*>(shared);
  float* const k_tile = q_tile + kTileFloats<C>;
  float* const v_tile = k_tile + kTileFloats<C>;
  float* const p_tile = v_tile + kTileFloats<C>;  // [64][64] probabilities

  const int tiles = static_cast<int>((s.queries + kTile - 1) / kTile), chunks = static_cast<int>(gridDim.y);
  const int block = static_cast<int>(blockIdx.x), unit = block / tiles, first = (tiles - 1 - block % tiles) * kTile;
  const int rows = min(kTile, static_cast<int>(s.queries) - first);
  const Rows<const T> q(s, in.q, s.queries, s.q_stride, unit), k(s, in.k, s.keys, s.k_stride, unit),
      v(s, in.v, s.keys, s.v_stride, unit);

  float sums[kOwned][C / 16] = {};
  float highest[kOwned], total[kOwned];
  int limit[kOwned];  // keys that the row sees
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    highest[i] = kHidden;
    total[i] = 0;
    limit[i] = visible_keys(s, first + tile_row(i));
  }
  const int seen = visible_keys(s, first + rows - 1);
  for (int first_key = 0; first_key < seen; first_key += kTile) {
    const int keys = min(kTile, static_cast<int>(s.keys) - first_key);
    float scores[kOwned][kOwned] = {};
    for (int turn = 0; turn < chunks; ++turn) {
      const Columns part(s, C, turn);
      __syncthreads();
      if (chunks > 1 || first_key == 0) load_tile<C, V>(q.at(first, part.first), q.stride, rows, part.count, q_tile);
      load_tile<C, V>(k.at(first_key, part.first), k.stride, keys, part.count, k_tile);
      if (turn + 1 == chunks) load_tile<C, V>(v.at(first_key, part.first), v.stride, keys, part.count, v_tile);
      __syncthreads();
      add_dots<C>(q_tile, k_tile, part.depth, scores);
    }
    bool is_shown[kOwned];
#pragma unroll
    for (int j = 0; j < kOwned; ++j) is_shown[j] = shown(s, in.key_mask, unit, first_key + tile_column(j));
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      float best = highest[i];
#pragma unroll
      for (int j = 0; j < kOwned; ++j) {
        const bool sees = first_key + tile_column(j) < limit[i] && is_shown[j];
        scores[i][j] = sees ? scores[i][j] * s.scale : kHidden;
        best = fmaxf(best, scores[i][j]);
      }
      best = row_max(best);
      const float base = best == kHidden ? 0.0f : best;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kOwned; ++j) {
        const float p = expf(scores[i][j] - base);
        sum += p;
        p_tile[tile_row(i) * kPitch<kTile> + tile_column(j)] = rounded<T>(p);
      }
      const float keep = expf(highest[i] - base);
      total[i] = total[i] * keep + row_sum(sum);
      highest[i] = best;
#pragma unroll
      for (int c = 0; c < C / 16; ++c) sums[i][c] *= keep;
    }
    __syncthreads();
    add_product<C>(p_tile, v_tile, sums);
  }

#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    const bool sees_nothing = highest[i] == kHidden;
    const float scale = 1.0f / total[i];
#pragma unroll
    for (int c = 0; c < C / 16; ++c) sums[i][c] = sees_nothing ? 0.0f : sums[i][c] * scale;
    if (tile_column(0) == 0 && blockIdx.y == 0 && tile_row(i) < rows)
      lse[unit * s.queries + first + tile_row(i)] = sees_nothing ? kHidden : highest[i] + logf(total[i]);
  }
  const Columns own(s, C, chunks - 1);
  const Rows<T> out(s, o, s.queries, s.o_stride, unit);
  store_tile<C, V>(sums, out.at(first, own.first), out.stride, rows, own.count);
}

// The gradient of a score q k^T from its probability and the probability's gradient.
__device__ float score_gradient(float p, float dp, float delta, float scale) {
  return p == 0.0f ? 0.0f : p * (dp - delta) * scale;
}

// delta [64]: the dot products of the rows of o and o's gradient, a warp for each row.
template <class T>
__device__ void dot_rows(const AttentionShape& s, Rows<const T> o, Rows<const T> o_grad, int first, int rows,
                         float* delta) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = warp; row < rows; row += kTileThreads / 32) {
    float sum = 0;
    for (int d = lane; d < s.head_dim; d += 32)
      sum += access::widen(*o.at(first + row, d)) * access::widen(*o_grad.at(first + row, d));
    sum = group_sum<32>(sum);
    if (lane == 0) delta[row] = sum;
  }
}

// dq, one block per tile of queries, and delta [B, H, Sq].
template <class T, class K>
__global__ void __launch_bounds__(kTileThreads, K::kBlocks)
    attention_query_grad_kernel(AttentionShape s, AttentionInputs<T> in, const T* o, const float* lse, const T* o_grad,
                                AttentionGrads<T> grads, float* delta) {
  constexpr int C = K::C, V = K::V;
  extern __shared__ float4 shared[];
  float* const q_tile = reinterpret_cast<float*>(shared);
  float* const do_tile = q_tile + kTileFloats<C>;
  float* const k_tile = do_tile + kTileFloats<C>;
  float* const v_tile = k_tile + kTileFloats<C>;
  float* const ds_tile = v_tile + kTileFloats<C>;  // [64][64] gradients of scores
  float* const delta_tile = ds_tile + kTileFloats<kTile>;

  const int tiles = static_cast<int>((s.queries + kTile - 1) / kTile), chunks = static_cast<int>(gridDim.y);
  const int block = static_cast<int>(blockIdx.x), unit = block / tiles, first = (tiles - 1 - block % tiles) * kTile;
  const int rows = min(kTile, static_cast<int>(s.queries) - first);
  const Rows<const T> q(s, in.q, s.queries, s.q_stride, unit), k(s, in.k, s.keys, s.k_stride, unit),
      v(s, in.v, s.keys, s.v_stride, unit), out(s, o, s.queries, s.o_stride, unit),
      out_grad(s, o_grad, s.queries, s.o_stride, unit);

  dot_rows<T>(s, out, out_grad, first, rows, delta_tile);
  __syncthreads();
  const std::int64_t first_row = unit * s.queries + first;  // of lse and delta
  float row_lse[kOwned], row_delta[kOwned];
  int limit[kOwned];
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    const int row = tile_row(i);
    row_lse[i] = row < rows ? lse[first_row + row] : 0.0f;
    row_delta[i] = row < rows ? delta_tile[row] : 0.0f;
    limit[i] = visible_keys(s, first + row);
    if (tile_column(0) == 0 && blockIdx.y == 0 && row < rows) delta[first_row + row] = row_delta[i];
  }

  float dq[kOwned][C / 16] = {};
  const int seen = visible_keys(s, first + rows - 1);
  for (int first_key = 0; first_key < seen; first_key += kTile) {
    const int keys = min(kTile, static_cast<int>(s.keys) - first_key);
    float scores[kOwned][kOwned] = {}, dp[kOwned][kOwned] = {};
    for (int turn = 0; turn < chunks; ++turn) {
      const Columns part(s, C, turn);
      __syncthreads();
      if (chunks > 1 || first_key == 0) {
        load_tile<C, V>(q.at(first, part.first), q.stride, rows, part.count, q_tile);
        load_tile<C, V>(out_grad.at(first, part.first), out_grad.stride, rows, part.count, do_tile);
      }
      load_tile<C, V>(k.at(first_key, part.first), k.stride, keys, part.count, k_tile);
      load_tile<C, V>(v.at(first_key, part.first), v.stride, keys, part.count, v_tile);
      __syncthreads();
      add_dots<C>(q_tile, k_tile, part.depth, scores);
      add_dots<C>(do_tile, v_tile, part.depth, dp);
    }
#pragma unroll
    for (int j = 0; j < kOwned; ++j) {
      const int key = first_key + tile_column(j);
      const bool is_shown = shown(s, in.key_mask, unit, key);
#pragma unroll
      for (int i = 0; i < kOwned; ++i) {
        const float p = key < limit[i] && is_shown ? expf(scores[i][j] * s.scale - row_lse[i]) : 0.0f;
        const float ds = score_gradient(p, dp[i][j], row_delta[i], s.scale);
        ds_tile[tile_row(i) * kPitch<kTile> + tile_column(j)] = rounded<T>(ds);
      }
    }
    __syncthreads();
    add_product<C>(ds_tile, k_tile, dq);
  }
  const Columns own(s, C, chunks - 1);
  const Rows<T> to(s, grads.dq, s.queries, grads.dq_stride, unit);
  store_tile<C, V>(dq, to.at(first, own.first), to.stride, rows, own.count);
}

// dk and dv, one block per tile of keys. Rows of tiles of scores are keys here, columns are queries.
template <class T, class K>
__global__ void __launch_bounds__(kTileThreads, K::kBlocks)
    attention_key_grad_kernel(AttentionShape s, AttentionInputs<T> in, const float* lse, const float* delta,
                              const T* o_grad, AttentionGrads<T> grads) {
  constexpr int C = K::C, V = K::V;
  extern __shared__ float4 shared[];
  float* const k_tile = reinterpret_cast<float*>(shared);
  float* const v_tile = k_tile + kTileFloats<C>;
  float* const q_tile = v_tile + kTileFloats<C>;
  float* const do_tile = q_tile + kTileFloats<C>;
  float* const p_tile = do_tile + kTileFloats<C>;      // [64][64] probabilities
  float* const ds_tile = p_tile + kTileFloats<kTile>;  // [64][64] gradients of scores

  const int tiles = static_cast<int>((s.keys + kTile - 1) / kTile), chunks = static_cast<int>(gridDim.y);
  const int block = static_cast<int>(blockIdx.x), unit = block / tiles, first = block % tiles * kTile;
  const int rows = min(kTile, static_cast<int>(s.keys) - first);
  const Rows<const T> q(s, in.q, s.queries, s.q_stride, unit), k(s, in.k, s.keys, s.k_stride, unit),
      v(s, in.v, s.keys, s.v_stride, unit), out_grad(s, o_grad, s.queries, s.o_stride, unit);
  bool is_shown[kOwned];
#pragma unroll
  for (int i = 0; i < kOwned; ++i) is_shown[i] = shown(s, in.key_mask, unit, first + tile_row(i));

  float dk[kOwned][C / 16] = {}, dv[kOwned][C / 16] = {};
  const int first_seeing = s.causal ? max(0, first + static_cast<int>(s.queries - s.keys)) : 0;
  const int begin = first_seeing / kTile * kTile;
  for (int first_query = begin; first_query < s.queries; first_query += kTile) {
    const int queries = min(kTile, static_cast<int>(s.queries) - first_query);
    float scores[kOwned][kOwned] = {}, dp[kOwned][kOwned] = {};
    for (int turn = 0; turn < chunks; ++turn) {
      const Columns part(s, C, turn);
      __syncthreads();
      if (chunks > 1 || first_query == begin) {
        load_tile<C, V>(k.at(first, part.first), k.stride, rows, part.count, k_tile);
        load_tile<C, V>(v.at(first, part.first), v.stride, rows, part.count, v_tile);
      }
      load_tile<C, V>(q.at(first_query, part.first), q.stride, queries, part.count, q_tile);
      load_tile<C, V>(out_grad.at(first_query, part.first), out_grad.stride, queries, part.count, do_tile);
      __syncthreads();
      add_dots<C>(k_tile, q_tile, part.depth, scores);
      add_dots<C>(v_tile, do_tile, part.depth, dp);
    }
#pragma unroll
    for (int j = 0; j < kOwned; ++j) {
      const int query = first_query + tile_column(j), limit = visible_keys(s, query);
      const bool exists = query < s.queries;
      const float query_lse = exists ? lse[unit * s.queries + query] : 0.0f;
      const float query_delta = exists ? delta[unit * s.queries + query] : 0.0f;
#pragma unroll
      for (int i = 0; i < kOwned; ++i) {
        const bool sees = first + tile_row(i) < limit && is_shown[i];
        const float p = sees ? expf(scores[i][j] * s.scale - query_lse) : 0.0f;
        const float ds = score_gradient(p, dp[i][j], query_delta, s.scale);
        const int at = tile_row(i) * kPitch<kTile> + tile_column(j);
        p_tile[at] = rounded<T>(p);
        ds_tile[at] = rounded<T>(ds);
      }
    }
    __syncthreads();
    add_product<C>(p_tile, do_tile, dv);
    add_product<C>(ds_tile, q_tile, dk);
  }
  const Columns own(s, C, chunks - 1);
  const Rows<T> dk_to(s, grads.dk, s.keys, grads.dk_stride, unit), dv_to(s, grads.dv, s.keys, grads.dv_stride, unit);
  store_tile<C, V>(dk, dk_to.at(first, own.first), dk_to.stride, rows, own.count);
  store_tile<C, V>(dv, dv_to.at(first, own.first), dv_to.stride, rows, own.count);
}

template <class T>
bool has_vectors(const AttentionShape& s) {
  return (s.head_dim | s.q_stride | s.k_stride | s.v_stride | s.o_stride) % kVector<T> == 0;
}

// Calls body(Cut) for the shape.
template <class T, class Body>
void with_cut(const AttentionShape& s, bool vectors, const Body& body) {
  constexpr int V = kVector<T>;
  if (s.head_dim <= 64) {
    vectors ? body(Cut<T, 64, V>{}) : body(Cut<T, 64, 1>{});
  } else {
    vectors ? body(Cut<T, 128, V>{}) : body(Cut<T, 128, 1>{});
  }
}

template <class Kernel>
void allow_shared_memory(Kernel* kernel, std::size_t bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA kernel attention: shared memory: ") + cudaGetErrorString(error));
}

// Blocks for tiles of `positions` rows of all heads, and for the columns of a head.
dim3 tile_grid(const char* name, const AttentionShape& s, std::int64_t positions, int C) {
  const unsigned tiles = grid_blocks(name, s.batch * s.heads * access::parts(positions, kTile));
  return {tiles, static_cast<unsigned>(access::parts(s.head_dim, C))};
}

}  // namespace

template <class T>
void attention_plain_prepare(const AttentionShape& shape) {
  for (const bool vectors : {false, true}) {
    with_cut<T>(shape, vectors, []<class K>(K) {
      allow_shared_memory(attention_forward_kernel<T, K>, K::kForwardBytes);
      allow_shared_memory(attention_query_grad_kernel<T, K>, K::kQueryBytes);
      allow_shared_memory(attention_key_grad_kernel<T, K>, K::kKeyBytes);
    });
  }
}

template <class T>
void attention_plain_forward(cudaStream_t stream, const AttentionShape& shape, const AttentionInputs<T>& in, T* o,
                             float* lse) {
  constexpr const char* name = "attention_forward";
  const bool vectors = has_vectors<T>(shape);
  if (vectors) require_aligned(name, {in.q, in.k, in.v, o});
  with_cut<T>(shape, vectors, [&]<class K>(K) {
    attention_forward_kernel<T, K>
        <<<tile_grid(name, shape, shape.queries, K::C), kTileThreads, K::kForwardBytes, stream>>>(shape, in, o, lse);
  });
  check_launch(name);
}

template <class T>
void attention_plain_backward(cudaStream_t stream, const AttentionShape& shape, const AttentionInputs<T>& in,
                              const T* o, const float* lse, const T* o_grad, const AttentionGrads<T>& grads,
                              float* delta) {
  constexpr const char* name = "attention_backward";
  const bool vectors = has_vectors<T>(shape) && (grads.dq_stride | grads.dk_stride | grads.dv_stride) % kVector<T> == 0;
  if (vectors) require_aligned(name, {in.q, in.k, in.v, o, o_grad, grads.dq, grads.dk, grads.dv});
  with_cut<T>(shape, vectors, [&]<class K>(K) {
    attention_query_grad_kernel<T, K>
        <<<tile_grid(name, shape, shape.queries, K::C), kTileThreads, K::kQueryBytes, stream>>>(shape, in, o, lse,
                                                                                                o_grad, grads, delta);
    check_launch(name);
    attention_key_grad_kernel<T, K><<<tile_grid(name, shape, shape.keys, K::C), kTileThreads, K::kKeyBytes, stream>>>(
        shape, in, lse, delta, o_grad, grads);
    check_launch(name);
  });
}

template void attention_plain_prepare<float>(const AttentionShape&);
template void attention_plain_prepare<bf16>(const AttentionShape&);
template void attention_plain_forward(cudaStream_t, const AttentionShape&, const AttentionInputs<float>&, float*,
                                      float*);
template void attention_plain_forward(cudaStream_t, const AttentionShape&, const AttentionInputs<bf16>&, bf16*, float*);
template void attention_plain_backward(cudaStream_t, const AttentionShape&, const AttentionInputs<float>&, const float*,
                                       const float*, const float*, const AttentionGrads<float>&, float*);
template void attention_plain_backward(cudaStream_t, const AttentionShape&, const AttentionInputs<bf16>&, const bf16*,
                                       const float*, const bf16*, const AttentionGrads<bf16>&, float*);

}  // namespace overtake::cuda
