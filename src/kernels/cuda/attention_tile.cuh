#pragma once
// Tiles of attention in shared memory and the products of tiles, for attention_plain.cu. A block of 16 x 16 threads
// works on 64 x 64 scores: thread (ty, tx) owns rows ty + 16 i and columns tx + 16 j of the scores, and rows ty + 16 i
// and columns 4 tx + 64 j .. + 3 of a result [64][C]. So all 16 threads of a row are in one warp.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/values.cuh"

namespace overtake::cuda {

inline constexpr int kTile = 64;          // queries, and keys, of one tile
inline constexpr int kTileThreads = 256;  // of a block
inline constexpr int kOwned = 4;          // rows, and columns of scores, of a thread

// Floats from row to row of a tile [64][C]: an odd number of 16-byte words, so that reads of neighbouring rows take
// all banks.
template <int C>
inline constexpr int kPitch = C + 4;
template <int C>
inline constexpr int kTileFloats = kTile* kPitch<C>;

__device__ inline int tile_row(int i) { return static_cast<int>(threadIdx.x) / 16 + 16 * i; }
__device__ inline int tile_column(int j) { return static_cast<int>(threadIdx.x) % 16 + 16 * j; }

__device__ inline void read_four(const float* from, float (&values)[4]) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  values[0] = four.x;
  values[1] = four.y;
  values[2] = four.z;
  values[3] = four.w;
}

// tile [64][C] = from [rows][columns], rows `stride` apart, with zeros around it. V: elements of one access.
template <int C, int V, class T>
__device__ inline void load_tile(const T* from, std::int64_t stride, int rows, int columns, float* tile) {
  constexpr int packs = C / V;
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < kTile * packs; at += kTileThreads) {
    const int row = at / packs, column = at % packs * V;
    float values[V];
    fill(values, 0.0f);
    if (row < rows && column < columns) unpack(load_packed<V>(from + row * stride + column), values);
    store_columns(tile + row * kPitch<C> + column, values);
  }
}

// scores += a b^T; a, b: [64][C], of which the first `depth` columns, rounded up to whole 16 bytes, are multiplied.
template <int C>
__device__ inline void add_dots(const float* a, const float* b, int depth, float (&scores)[kOwned][kOwned]) {
#pragma unroll 1
  for (int d = 0; d < depth; d += 4) {
    float left[kOwned][4], right[kOwned][4];
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      read_four(a + tile_row(i) * kPitch<C> + d, left[i]);
      read_four(b + tile_column(i) * kPitch<C> + d, right[i]);
    }
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
#pragma unroll
      for (int j = 0; j < kOwned; ++j) {
#pragma unroll
        for (int k = 0; k < 4; ++k) scores[i][j] += left[i][k] * right[j][k];
      }
    }
  }
}

// sums += factor tile; factor: [64][64], tile: [64][C].
template <int C>
__device__ inline void add_product(const float* factor, const float* tile, float (&sums)[kOwned][C / 16]) {
  const int first_column = 4 * tile_column(0);
#pragma unroll 1
  for (int k = 0; k < kTile; k += 4) {
    float left[kOwned][4];
#pragma unroll
    for (int i = 0; i < kOwned; ++i) read_four(factor + tile_row(i) * kPitch<kTile> + k, left[i]);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int j = 0; j < C / 64; ++j) {
        float right[4];
        read_four(tile + (k + step) * kPitch<C> + first_column + 64 * j, right);
#pragma unroll
        for (int i = 0; i < kOwned; ++i) {
#pragma unroll
          for (int c = 0; c < 4; ++c) sums[i][4 * j + c] += left[i][step] * right[c];
        }
      }
    }
  }
}

// to [rows][columns], rows `stride` apart, = the upper left part of the result. V: as for load_tile.
template <int C, int V, class T>
__device__ inline void store_tile(const float (&sums)[kOwned][C / 16], T* to, std::int64_t stride, int rows,
                                  int columns) {
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    const int row = tile_row(i);
    if (row >= rows) continue;
#pragma unroll
    for (int j = 0; j < C / 64; ++j) {
      const int column = 4 * tile_column(0) + 64 * j;
      T* at = to + row * stride + column;
      const float values[4] = {sums[i][4 * j], sums[i][4 * j + 1], sums[i][4 * j + 2], sums[i][4 * j + 3]};
      if constexpr (V > 1) {
        if (column < columns) store_values(at, values);
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float value[1] = {values[c]};
          if (column + c < columns) store_values(at + c, value);
        }
      }
    }
  }
}

// Over the 16 threads that own a row; all of them get the same bits.
__device__ inline float row_sum(float value) {
#pragma unroll
  for (int mask = 8; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}
__device__ inline float row_max(float value) {
#pragma unroll
  for (int mask = 8; mask > 0; mask /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

}  // namespace overtake::cuda
