#pragma once
// The links between devices that are parts of one: what moves over them takes as long as it would over real ones.

#include <cstdint>

#include "overtake/types.h"

namespace overtake {

// One for each pair of devices and direction.
struct VirtualLink {
  std::int64_t bytes_per_s = 0;  // 0: as fast as it goes
  std::int64_t latency_ns = 0;

  bool is_throttled() const { return bytes_per_s > 0 || latency_ns > 0; }
};

// How long a transfer takes: a receipt of so many bytes, or a collective on so many of each of its members, as a ring
// of them would do it.
std::int64_t transfer_ns(const VirtualLink& link, Kind kind, std::int64_t bytes, std::int64_t members);

}  // namespace overtake
