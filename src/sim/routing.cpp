#include "sim/routing.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {
namespace {

// Mixes the three so that neighbours fall apart (the finaliser of splitmix64).
std::uint64_t mix(std::uint32_t from, std::uint32_t to, std::uint32_t at) {
  std::uint64_t x = (std::uint64_t{from} << 32 | to) ^ std::uint64_t{at} * 0x9E3779B97F4A7C15ull;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

}  // namespace

Router::Router(const Topology& topology)
    : topology_(topology),
      torus_ways_(topology),
      first_out_(topology.vertices.size() + 1, 0),
      hops_(topology.vertices.size(), kNone),
      width_(topology.vertices.size(), 0) {
  for (const DirectedLink& l : topology.links) ++first_out_[l.from + 1];
  for (std::size_t v = 1; v < first_out_.size(); ++v) first_out_[v] += first_out_[v - 1];
  out_.resize(topology.links.size());
  std::vector<std::uint32_t> next(first_out_.begin(), first_out_.end() - 1);
  for (std::uint32_t l = 0; l < topology.links.size(); ++l) out_[next[topology.links[l].from]++] = l;
}

// Breadth first against the direction of the links; link l ^ 1 is the other direction of l. As far as the hops of
// `from`, all of them, so that its width is known too; the next call for the same target goes on from there.
void Router::measure(std::uint32_t from, std::uint32_t to) {
  if (target_ != to) {
    for (const std::uint32_t v : reached_) hops_[v] = kNone;
    target_ = to;
    reached_ = {to};
    next_ = 0;
    hops_[to] = 0;
    width_[to] = INT64_MAX;
  }
  while (next_ < reached_.size() && (hops_[from] == kNone || hops_[reached_[next_]] < hops_[from])) {
    const std::uint32_t v = reached_[next_++];
    if (v != to && topology_.is_device(v)) continue;
    for (std::uint32_t k = first_out_[v]; k < first_out_[v + 1]; ++k) {
      const DirectedLink& back = topology_.links[out_[k] ^ 1];  // from a neighbour to v
      if (hops_[back.from] == kNone) {
        hops_[back.from] = hops_[v] + 1;
        width_[back.from] = 0;
        reached_.push_back(back.from);
      }
      if (hops_[back.from] == hops_[v] + 1)
        width_[back.from] = std::max(width_[back.from], std::min(back.bandwidth, width_[v]));
    }
  }
}

std::vector<std::uint32_t> Router::route(std::uint32_t from, std::uint32_t to) {
  if (torus_ways_.joins(from, to)) return torus_ways_.way(from, to);
  measure(from, to);
  OVERTAKE_CHECK(hops_[from] != kNone, "no way from {} to {}", topology_.vertices[from].name,
                 topology_.vertices[to].name);
  std::vector<std::uint32_t> links, equal;
  for (std::uint32_t v = from; v != to;) {
    equal.clear();
    for (std::uint32_t k = first_out_[v]; k < first_out_[v + 1]; ++k) {
      const DirectedLink& l = topology_.links[out_[k]];
      const bool forwards = l.to == to || !topology_.is_device(l.to);
      if (forwards && hops_[l.to] != kNone && hops_[l.to] + 1 == hops_[v] &&
          std::min(l.bandwidth, width_[l.to]) == width_[v])
        equal.push_back(out_[k]);
    }
    links.push_back(equal[mix(from, to, v) % equal.size()]);
    v = topology_.links[links.back()].to;
  }
  return links;
}

}  // namespace overtake
