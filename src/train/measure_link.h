#pragma once
// How fast the ranks of a job reach one another, found out by a few transfers.

#include <cstdint>
#include <functional>

#include "comm/group.h"
#include "overtake/machine.h"

namespace overtake {

enum class LinkUse : std::uint8_t {
  messages,  // from each rank to the next
  sums  // over all ranks, in the terms of a ring: 2 (n - 1) times from rank to rank, an n-th of the bytes each time
};

// By all ranks at once; all get what rank 0 measured. Takes a few tenths of a second, on a slow link longer.
// `now` is the clock, in seconds; none: this machine's.
LinkTimes measure_link(Group& world, LinkUse use, std::function<double()> now = {});

}  // namespace overtake
