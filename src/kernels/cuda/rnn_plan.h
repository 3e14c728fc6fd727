#pragma once
// How the persistent kernel of a recurrence (rnn_recurrence.cuh) spreads over the multiprocessors. Internal to the
// recurrences.

#include <cstdint>
#include <optional>

namespace overtake::cuda::rnn_detail {

inline constexpr int kPersistentWarps = 16, kPersistentThreads = kPersistentWarps * 32;
// Weights of a warp: so many 16 x 32 fragments of 8 registers a thread each, half of what a thread has.
inline constexpr int kMostFragments = 8;

// Batch rows do not meet: groups of them are computed side by side. The blocks of a group share out the hidden units,
// each with the weights of its units, and exchange their results after every step. In a block, warps share out the
// weights' rows (tiles of 16) and the depth of the product (pieces of 32).
struct PersistentPlan {
  int units;                    // hidden units of a block, a power of two
  int unit_blocks;              // blocks of a group
  int groups;                   // side by side in one launch
  int rows;                     // batch rows of a group, a multiple of 8
  int launches;                 // one after another, where the batch is too large for one
  int row_warps, depth_warps;   // their product is kPersistentWarps
  int row_tiles, depth_pieces;  // of a warp: powers of two, row_tiles * depth_pieces <= kMostFragments

  // Floats from one batch row's partial sums to the next; 4 more than a multiple of 16: no bank conflicts.
  constexpr int pitch() const { return row_warps * row_tiles * 16 + 4; }
  // [rows][depth_warps] of them.
  constexpr int shared_bytes() const { return rows * depth_warps * pitch() * 4; }
};

// The plan for products of [batch, depth] with [depth, rows_per_unit * hidden], or none if the weights do not fit. Each
// block has a multiprocessor of its own.
std::optional<PersistentPlan> persistent_plan(std::int64_t batch, std::int64_t hidden, std::int64_t depth,
                                              int rows_per_unit, int multiprocessors);

// Groups of all launches are at most as many: each has a counter in scratch, a cache line for each.
inline std::int64_t most_groups(std::int64_t batch) { return 2 * ((batch + 7) / 8); }
inline constexpr std::int64_t kCounterBytes = 128;

}  // namespace overtake::cuda::rnn_detail
