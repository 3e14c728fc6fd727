#pragma once
// Ways through a cluster: the fewest hops, among those the widest, among those one chosen by source and destination (as
// switches do), so that equal ways share the load. Devices do not forward, but for those of a torus: between two of
// one, the way goes along one dimension after the other (torus_ways.h).

#include <cstdint>
#include <vector>

#include "overtake/cluster.h"
#include "sim/torus_ways.h"

namespace overtake {

// Whether a link is between switches that are in no node.
inline bool is_outside(const Topology& topology, const DirectedLink& l) {
  return topology.vertices[l.from].node == kNone && topology.vertices[l.to].node == kNone;
}

class Router {
 public:
  explicit Router(const Topology& topology);  // must outlive the router

  // The links from one vertex to another; empty for a vertex to itself.
  std::vector<std::uint32_t> route(std::uint32_t from, std::uint32_t to);
  const TorusWays& torus_ways() const { return torus_ways_; }

 private:
  void measure(std::uint32_t from, std::uint32_t to);

  const Topology& topology_;
  TorusWays torus_ways_;
  std::vector<std::uint32_t> first_out_;  // per vertex, into out_; one more at the end
  std::vector<std::uint32_t> out_;        // links, by the vertex they leave
  // From each vertex to target_: hops, and the narrowest link of the widest way with that many. Known of those that
  // were reached, which are in the order of their hops; the neighbours of the first `next_` were.
  std::uint32_t target_ = kNone;
  std::vector<std::uint32_t> reached_;
  std::size_t next_ = 0;
  std::vector<std::uint32_t> hops_;
  std::vector<std::int64_t> width_;
};

}  // namespace overtake
