#pragma once
// How fast the ranks of a job reach one another, found out by a few transfers.

#include <cstdint>

#include "comm/group.h"

namespace overtake {

// As if every rank had one link to a switch.
struct LinkTimes {
  std::int64_t latency_ns = 0;   // from rank to rank
  std::int64_t bytes_per_s = 0;  // that every rank sends while it gets as many
  double busy_cores = 0;         // of a rank, while it does so
};

enum class LinkUse : std::uint8_t {
  messages,  // from each rank to the next
  sums  // over all ranks, in the terms of a ring: 2 (n - 1) times from rank to rank, an n-th of the bytes each time
};

// By all ranks at once; all get what rank 0 measured. Takes a few tenths of a second, on a slow link longer.
LinkTimes measure_link(Group& world, LinkUse use);

}  // namespace overtake
