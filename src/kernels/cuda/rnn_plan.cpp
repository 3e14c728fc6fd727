#include "kernels/cuda/rnn_plan.h"

#include <algorithm>
#include <bit>

namespace overtake::cuda::rnn_detail {
namespace {

constexpr std::int64_t kMostShared = 200 * 1024;

std::int64_t parts(std::int64_t count, std::int64_t part) { return (count + part - 1) / part; }

int power_of_two(std::int64_t least) {
  return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(least, 1))));
}

// Clock cycles of all steps' worth of one step, roughly: what a multiprocessor gets from L2 and L1, the partial sums
// through shared memory, the matrix instructions, and the latency of a step.
double cost(const PersistentPlan& plan, std::int64_t depth) {
  constexpr double latency = 2500, arrival = 4, l2_bytes = 24, l1_bytes = 64, shared_bytes = 128, fragment = 52;
  const double states = 2.0 * plan.rows * static_cast<double>(depth);
  const double partials = 2.0 * plan.shared_bytes();
  const double fragments = plan.rows / 8.0 * plan.row_tiles * plan.depth_pieces;
  return plan.launches * (latency + arrival * plan.unit_blocks + states / l2_bytes +
                          states * plan.row_warps / l1_bytes + partials / shared_bytes + fragments * fragment);
}

}  // namespace

std::optional<PersistentPlan> persistent_plan(std::int64_t batch, std::int64_t hidden, std::int64_t depth,
                                              int rows_per_unit, int multiprocessors) {
  std::optional<PersistentPlan> best;
  if (batch < 1 || hidden % 8 != 0) return best;
  for (int units = 4; units <= 64; units *= 2) {
    for (int row_warps = 1; row_warps <= kPersistentWarps; row_warps *= 2) {
      PersistentPlan plan{};
      plan.units = units;
      plan.unit_blocks = static_cast<int>(parts(hidden, units));
      if (plan.unit_blocks > multiprocessors) continue;
      plan.row_warps = row_warps;
      plan.depth_warps = kPersistentWarps / row_warps;
      plan.row_tiles = power_of_two(parts(parts(rows_per_unit * units, 16), row_warps));
      plan.depth_pieces = power_of_two(parts(parts(depth, 32), plan.depth_warps));
      if (plan.row_tiles * plan.depth_pieces > kMostFragments) continue;
      // One thread finishes one unit of one batch row.
      const std::int64_t eights = parts(batch, 8), most_eights = kPersistentThreads / units / 8;
      plan.groups = static_cast<int>(std::min<std::int64_t>(multiprocessors / plan.unit_blocks, eights));
      plan.launches = static_cast<int>(parts(eights, plan.groups * most_eights));
      plan.rows = static_cast<int>(parts(eights, static_cast<std::int64_t>(plan.groups) * plan.launches)) * 8;
      if (plan.shared_bytes() > kMostShared) continue;
      if (!best || cost(plan, depth) < cost(*best, depth)) best = plan;
    }
  }
  return best;
}

}  // namespace overtake::cuda::rnn_detail
