#pragma once
// A group of devices that communicate, and how they lie in the cluster.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "overtake/cluster.h"
#include "sim/network.h"
#include "sim/routing.h"

namespace overtake {

// The network's paths between vertices, found once each.
class Paths {
 public:
  Paths(const Topology& topology, FlowNetwork& network) : topology_(topology), router_(topology), network_(network) {}

  PathId between(std::uint32_t from, std::uint32_t to);
  // The kind of link that sets what a protocol costs on the way: a network before PCIe before NVLink.
  LinkKind kind(PathId path) const;
  const Topology& topology() const { return topology_; }
  FlowNetwork& network() { return network_; }
  Router& router() { return router_; }

 private:
  const Topology& topology_;
  Router router_;
  FlowNetwork& network_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, PathId> known_;
};

// A switch that can add what the ranks send, none of which share a link on their way to it.
struct Reducer {
  Reduction reduction;
  std::vector<LinkId> up, down;  // from all ranks to the switch, and back
  std::int64_t latency_ns = 0;   // there and back
  double bytes_per_ns = 0;       // of the narrowest link
  std::uint32_t vertex = kNone;  // the switch
};

// The usual way between two ranks: the worst of a kind.
struct Hop {
  LinkKind kind = LinkKind::ici;
  std::int64_t latency_ns = 0;
  double bytes_per_ns = 1e9;
};

// Ranks that are a torus themselves: a whole one, or every k-th device along some of its dimensions.
struct RankTorus {
  std::vector<std::uint32_t> sizes;  // of those dimensions along which there are several
  std::vector<std::uint32_t> ranks;  // by place: the last dimension counts fastest
  std::vector<Hop> hops;             // per dimension, from one rank to the next
};

struct DeviceGroup {
  std::vector<std::uint32_t> devices;  // by rank
  // Ranks by node, in order of first appearance, or where a node's devices are joined by cables, of its widest ring.
  std::vector<std::vector<std::uint32_t>> nodes;
  bool has_rails = false;  // several nodes of equal size, and equal places of different nodes have ways of their own
  // Orders of the ranks to send in, one per ring, to be used at once with equal shares.
  std::vector<std::vector<std::uint32_t>> rings;
  Hop inside;                    // around the ranks of a node
  Hop rail;                      // between equal places of different nodes
  Hop across;                    // from the last of a node to the first of the next, in the rings
  double ring_bytes_per_ns = 0;  // of all rings together, where each rank sends
  // In an all-to-all: what each rank sends to all others together, over links that all share. From measure_exchange();
  // 0 bytes/ns before that.
  Hop exchange{.bytes_per_ns = 0};
  std::optional<RankTorus> torus;      // where the ranks are one
  std::optional<Reducer> reducer;      // the nearest, for all ranks
  std::vector<Reducer> rail_reducers;  // with rails and no such: one for each place in the nodes; or empty
  std::vector<Reducer> node_reducers;  // with rails: of the ranks of each node alone; or empty

  std::uint32_t size() const { return static_cast<std::uint32_t>(devices.size()); }
  bool is_even() const;  // all nodes have equally many ranks
  // Whether trees are chains inside the nodes, as NCCL's; through one switch they are trees.
  bool has_chains() const { return nodes.size() > 1 || rings.size() > 1; }
};

// The devices must be different.
DeviceGroup make_group(const Cluster& cluster, Paths& paths, std::vector<std::uint32_t> devices);
// Looks at the way of every pair, so it is done where an all-to-all is wanted.
void measure_exchange(Paths& paths, DeviceGroup& group);

}  // namespace overtake
