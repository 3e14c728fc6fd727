#pragma once
// What moves between devices that are parts of one GPU, at the pace of a link. Calls only enqueue. Arrays start
// wherever an element may.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

namespace overtake::cuda {

// The work of a transfer is done as soon as it can be; then one thread waits until the time since its start is over.
// By the GPU's own clock, which ticks about once in a microsecond or more often.
struct Pace {
  std::int64_t ns = 0;  // the least that the transfer takes; 0: it does not wait
  int blocks = 1;       // at most so many thread blocks work on it
};

// Enough blocks to touch so many bytes in three quarters of the time; where that is 0, so many as fill multiprocessors.
Pace make_pace(std::int64_t ns, std::int64_t touched_bytes, int multiprocessors);

// to [bytes] = from [bytes].
struct Copied {
  const void* from;
  void* to;
  std::int64_t bytes;
};
// A part of at most kTransferTile bytes: what a block does at a time.
inline constexpr std::int64_t kTransferTile = 32 << 10;
struct CopiedTile {
  const unsigned char* from;
  unsigned char* to;
  std::int32_t bytes;
  std::int32_t width;  // of an access: 16, 4, 2 or 1 bytes
};
// The table for the call below, to be copied to device memory: made once, as long as the pointers stay.
std::vector<CopiedTile> cut_copies(std::span<const Copied> copies);
void paced_copy(cudaStream_t stream, const CopiedTile* tiles, std::int64_t tile_count, const Pace& pace);

// to [count] = from[0] [count] + from[1] [count] + ..., added in float32 from left to right, rounded once.
struct Summed {
  std::vector<const void*> from;
  void* to;
  std::int64_t count;
  bool is_bf16;  // else float
};
struct SummedTile {
  std::int64_t sources;  // where those of its sum begin in the table of sources
  std::int64_t first;    // element
  void* to;              // the whole sum
  std::int32_t count;
  bool is_bf16;
  bool is_aligned;  // all arrays, at 16-byte boundaries
};
// Tables for the call below, to be copied to device memory: all sums have as many sources.
struct SumTables {
  std::vector<SummedTile> tiles;
  std::vector<const void*> sources;
  int members = 0;
};
SumTables cut_sums(std::span<const Summed> sums);
void paced_sum(cudaStream_t stream, const SummedTile* tiles, std::int64_t tile_count, const void* const* sources,
               int members, const Pace& pace);

}  // namespace overtake::cuda
