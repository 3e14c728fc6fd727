#include "overtake/virtual_link.h"

#include <cmath>

#include "base/error.h"

namespace overtake {
namespace {

// Passes around the ring: each has members - 1 steps, in which an n-th of the bytes moves.
int passes_of(Kind kind) {
  OVERTAKE_CHECK(kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::all_gather,
                 "{} is no transfer that takes time", to_string(kind));
  return kind == Kind::all_reduce ? 2 : 1;
}

}  // namespace

std::int64_t transfer_ns(const VirtualLink& link, Kind kind, std::int64_t bytes, std::int64_t members) {
  const double ns_per_byte = link.bytes_per_s > 0 ? 1e9 / static_cast<double>(link.bytes_per_s) : 0,
               all_bytes_ns = ns_per_byte * static_cast<double>(bytes);
  if (kind == Kind::recv) return link.latency_ns + std::llround(all_bytes_ns);
  const std::int64_t steps = passes_of(kind) * (members - 1);
  return steps * link.latency_ns +
         std::llround(static_cast<double>(steps) * all_bytes_ns / static_cast<double>(members));
}

}  // namespace overtake
