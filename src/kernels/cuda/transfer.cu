#include "kernels/cuda/transfer.h"

#include <algorithm>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/values.cuh"

namespace overtake::cuda {
namespace {

constexpr int kThreads = 512;

__device__ std::int64_t now_ns() {
  std::int64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// Called by all threads of block 0 at the end of their work. The others are gone by then, or have less than it to do.
__device__ void wait_until(std::int64_t ns) {
  if (threadIdx.x != 0) return;
  for (std::int64_t left; (left = ns - now_ns()) > 0;) __nanosleep(left > 4000 ? 1000u : 100u);
}

template <class Word>
__device__ void copy_words(const CopiedTile& tile) {
  const auto* from = reinterpret_cast<const Word*>(tile.from);
  auto* to = reinterpret_cast<Word*>(tile.to);
  const int words = tile.bytes / static_cast<int>(sizeof(Word));
  // Loads of four words are on their way before the first is stored.
  int i = static_cast<int>(threadIdx.x);
  for (; i + 3 * kThreads < words; i += 4 * kThreads) {
    Word held[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) held[j] = from[i + j * kThreads];
#pragma unroll
    for (int j = 0; j < 4; ++j) to[i + j * kThreads] = held[j];
  }
  for (; i < words; i += kThreads) to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads) copy_kernel(const CopiedTile* tiles, std::int64_t count, std::int64_t ns) {
  const std::int64_t start = ns > 0 && blockIdx.x == 0 ? now_ns() : 0;
  for (std::int64_t t = blockIdx.x; t < count; t += gridDim.x) {
    const CopiedTile tile = tiles[t];
    switch (tile.width) {
      case 16:
        copy_words<uint4>(tile);
        break;
      case 4:
        copy_words<std::uint32_t>(tile);
        break;
      case 2:
        copy_words<std::uint16_t>(tile);
        break;
      default:
        copy_words<unsigned char>(tile);
    }
  }
  if (ns > 0 && blockIdx.x == 0) wait_until(start + ns);
}

// V neighbouring elements of a sum, from element `at` on.
template <int V, class T>
__device__ void sum_at(const void* const* sources, int members, std::int64_t at, T* to) {
  float sum[V];
  unpack(load_packed<V>(static_cast<const T*>(sources[0]) + at), sum);
#pragma unroll 4
  for (int m = 1; m < members; ++m) {
    float x[V];
    unpack(load_packed<V>(static_cast<const T*>(sources[m]) + at), x);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += x[v];
  }
  store_values<V>(to + at, sum);
}

template <class T>
__device__ void sum_tile(const SummedTile& tile, const void* const* sources, int members) {
  constexpr int V = kVector<T>;
  T* to = static_cast<T*>(tile.to);
  const int wide = tile.is_aligned ? tile.count / V : 0;
  for (int i = static_cast<int>(threadIdx.x); i < wide; i += kThreads)
    sum_at<V>(sources, members, tile.first + i * V, to);
  for (int i = wide * V + static_cast<int>(threadIdx.x); i < tile.count; i += kThreads)
    sum_at<1>(sources, members, tile.first + i, to);
}

__global__ void __launch_bounds__(kThreads)
    sum_kernel(const SummedTile* tiles, std::int64_t count, const void* const* sources, int members, std::int64_t ns) {
  const std::int64_t start = ns > 0 && blockIdx.x == 0 ? now_ns() : 0;
  for (std::int64_t t = blockIdx.x; t < count; t += gridDim.x) {
    const SummedTile tile = tiles[t];
    if (tile.is_bf16) {
      sum_tile<bf16>(tile, sources + tile.sources, members);
    } else {
      sum_tile<float>(tile, sources + tile.sources, members);
    }
  }
  if (ns > 0 && blockIdx.x == 0) wait_until(start + ns);
}

bool is_at_boundary(const void* p, std::uintptr_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

// Blocks to launch; a transfer of nothing still takes its time.
unsigned blocks_of(const char* kernel, std::int64_t tiles, const Pace& pace) {
  return grid_blocks(kernel, std::clamp<std::int64_t>(tiles, 1, std::max(pace.blocks, 1)));
}

}  // namespace

Pace make_pace(std::int64_t ns, std::int64_t touched_bytes, int multiprocessors) {
  if (ns <= 0) return {0, 2 * multiprocessors};
  constexpr double bytes_per_ns = 15;  // that a block moves on an H200, at the least
  const double blocks = static_cast<double>(touched_bytes) / (0.75 * static_cast<double>(ns) * bytes_per_ns);
  return {ns, static_cast<int>(std::clamp(blocks + 1, 1.0, 2.0 * multiprocessors))};
}

std::vector<CopiedTile> cut_copies(std::span<const Copied> copies) {
  std::vector<CopiedTile> tiles;
  for (const Copied& c : copies) {
    std::int32_t width = 16;
    const auto fits = [&](int w) {
      const auto bytes = static_cast<std::uintptr_t>(w);
      return is_at_boundary(c.from, bytes) && is_at_boundary(c.to, bytes);
    };
    while (!fits(width)) width = width == 16 ? 4 : width / 2;
    // The last few bytes of a copy may be fewer than an access: a tile of their own.
    const std::int64_t whole = c.bytes / width * width;
    const auto add = [&](std::int64_t begin, std::int64_t end, std::int32_t w) {
      tiles.push_back({static_cast<const unsigned char*>(c.from) + begin, static_cast<unsigned char*>(c.to) + begin,
                       static_cast<std::int32_t>(end - begin), w});
    };
    for (std::int64_t at = 0; at < whole; at += kTransferTile) add(at, std::min(at + kTransferTile, whole), width);
    if (whole < c.bytes) add(whole, c.bytes, 1);
  }
  return tiles;
}

void paced_copy(cudaStream_t stream, const CopiedTile* tiles, std::int64_t tile_count, const Pace& pace) {
  if (tile_count == 0 && pace.ns <= 0) return;
  copy_kernel<<<blocks_of("paced_copy", tile_count, pace), kThreads, 0, stream>>>(tiles, tile_count, pace.ns);
  check_launch("paced_copy");
}

SumTables cut_sums(std::span<const Summed> sums) {
  SumTables tables;
  for (const Summed& s : sums) {
    access::require(!s.from.empty() && s.from.size() == sums[0].from.size(), "sums of different numbers of arrays");
    const auto first_source = static_cast<std::int64_t>(tables.sources.size());
    bool is_aligned = is_at_boundary(s.to, 16);
    for (const void* from : s.from) is_aligned = is_aligned && is_at_boundary(from, 16);
    tables.sources.insert(tables.sources.end(), s.from.begin(), s.from.end());
    const std::int64_t tile = kTransferTile / (s.is_bf16 ? 2 : 4);
    for (std::int64_t at = 0; at < s.count; at += tile)
      tables.tiles.push_back(
          {first_source, at, s.to, static_cast<std::int32_t>(std::min(tile, s.count - at)), s.is_bf16, is_aligned});
  }
  tables.members = sums.empty() ? 0 : static_cast<int>(sums[0].from.size());
  return tables;
}

void paced_sum(cudaStream_t stream, const SummedTile* tiles, std::int64_t tile_count, const void* const* sources,
               int members, const Pace& pace) {
  if (tile_count == 0 && pace.ns <= 0) return;
  sum_kernel<<<blocks_of("paced_sum", tile_count, pace), kThreads, 0, stream>>>(tiles, tile_count, sources, members,
                                                                                pace.ns);
  check_launch("paced_sum");
}

}  // namespace overtake::cuda
