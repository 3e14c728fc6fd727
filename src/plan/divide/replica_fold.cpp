#include "plan/divide/replica_fold.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <tuple>

#include "sim/routing.h"

namespace overtake {
namespace {

// Smaller runs take a fraction of a second as they are, and their collectives step by step.
constexpr std::uint32_t kLeastDevices = 33;

// The nodes of a machine, by their number.
struct MachineNodes {
  explicit MachineNodes(const Machine& machine) : first_device(machine.topology.node_count, kNone) {
    for (std::uint32_t t = 0; t < machine.cluster.nodes.size(); ++t)
      type.insert(type.end(), static_cast<std::size_t>(machine.cluster.nodes[t].count), t);
    for (std::uint32_t d = 0; d < machine.topology.device_count; ++d) {
      std::uint32_t& first = first_device[machine.topology.vertices[d].node];
      first = std::min(first, d);
    }
  }
  std::vector<std::uint32_t> type;          // in Cluster::nodes
  std::vector<std::uint32_t> first_device;  // of the cluster
};

// Where a device is, but for which of the alike nodes that is.
struct NodePlace {
  std::uint32_t node_type = 0, in_node = 0, node = 0;  // node: counted from the first one of its replicas
  bool operator==(const NodePlace&) const = default;
};

// The places of some devices, nodes in the order in which they come.
std::vector<NodePlace> places_of(const Topology& topology, const MachineNodes& nodes,
                                 std::span<const std::uint32_t> devices) {
  std::map<std::uint32_t, std::uint32_t> seen;
  std::vector<NodePlace> places;
  for (const std::uint32_t d : devices) {
    const std::uint32_t node = topology.vertices[d].node;
    const auto known = seen.try_emplace(node, static_cast<std::uint32_t>(seen.size())).first;
    places.push_back({nodes.type[node], d - nodes.first_device[node], known->second});
  }
  return places;
}

// Whether links between switches outside the nodes carry all that the nodes at one of their ends can send: whoever else
// sends, and whichever of equal ways a flow takes, then makes no difference there.
bool is_wide_outside(const Topology& topology) {
  std::vector<std::int64_t> from_nodes(topology.vertices.size(), 0);
  for (const DirectedLink& l : topology.links)
    if (topology.vertices[l.from].node != kNone && topology.vertices[l.to].node == kNone)
      from_nodes[l.to] += l.bandwidth;
  return std::ranges::all_of(topology.links, [&](const DirectedLink& l) {
    if (!is_outside(topology, l)) return true;
    const std::int64_t a = from_nodes[l.from], b = from_nodes[l.to];
    const std::int64_t most = a == 0 ? b : b == 0 ? a : std::min(a, b);
    return most > 0 && l.bandwidth >= most;
  });
}

// Whether there is one way only between any two of those switches: then the flows of alike nodes share its links
// evenly.
bool is_tree_outside(const Topology& topology) {
  std::vector<std::uint32_t> above(topology.vertices.size());
  std::iota(above.begin(), above.end(), 0u);
  const auto top = [&](std::uint32_t v) {
    while (above[v] != v) v = above[v] = above[above[v]];
    return v;
  };
  for (std::size_t l = 0; l < topology.links.size(); l += 2) {  // one direction of each cable
    if (!is_outside(topology, topology.links[l])) continue;
    const std::uint32_t a = top(topology.links[l].from), b = top(topology.links[l].to);
    if (a == b) return false;
    above[a] = b;
  }
  return true;
}

// Nodes of a type have the same links to the outside, and one way out of each of their devices and switches:
// where there are several, which one a flow takes depends on the node.
bool are_nodes_alike(const Topology& topology, const MachineNodes& nodes, std::span<const std::uint32_t> devices) {
  using Way = std::tuple<std::uint32_t, std::int64_t, std::int64_t>;  // where to, how wide, how late
  std::vector<std::vector<Way>> ways(topology.node_count);
  std::vector<char> is_used(topology.node_count, 0), has_way(topology.vertices.size(), 0);
  for (const std::uint32_t d : devices) is_used[topology.vertices[d].node] = 1;
  for (const DirectedLink& l : topology.links) {
    const std::uint32_t node = topology.vertices[l.from].node, to = topology.vertices[l.to].node;
    if (node == kNone || !is_used[node] || to == node) continue;
    if (to != kNone || has_way[l.from]++ != 0) return false;
    ways[node].emplace_back(l.to, l.bandwidth, l.latency_ns);
  }
  std::map<std::uint32_t, const std::vector<Way>*> known;  // by type
  for (std::uint32_t n = 0; n < topology.node_count; ++n) {
    if (!is_used[n]) continue;
    const auto first = known.try_emplace(nodes.type[n], &ways[n]).first;
    if (*first->second != ways[n]) return false;
  }
  return true;
}

bool is_as_described(const ClusterOptions& options) {
  return options.failures.empty() &&
         std::ranges::adjacent_find(options.speeds, std::not_equal_to()) == options.speeds.end();
}

}  // namespace

ReplicaFold fold_replicas(const ParallelOptions& options, const Machine& machine,
                          const std::vector<std::uint32_t>& devices) {
  const std::uint32_t all = options.replicas, local = options.stages;
  const Topology& topology = machine.topology;
  const ReplicaFold none{.kept = all};
  if (!machine.folds_replicas || machine.kind != Machine::Kind::described || all < 2 ||
      devices.size() < kLeastDevices || !is_as_described(machine.options))
    return none;
  const MachineNodes nodes(machine);
  std::vector<std::uint32_t> last_replica(topology.node_count, 0);
  for (std::uint32_t i = 0; i < devices.size(); ++i) last_replica[topology.vertices[devices[i]].node] = i / local;
  // The first replicas, with all others on their nodes.
  std::uint32_t kept = 1;
  for (std::uint32_t i = 0; i < kept * local; ++i)
    kept = std::max(kept, last_replica[topology.vertices[devices[i]].node] + 1);
  if (2 * kept > all || all % kept != 0) return none;
  const std::span<const std::uint32_t> run(devices);
  const std::size_t part = std::size_t{kept} * local;
  const std::vector<NodePlace> first = places_of(topology, nodes, run.first(part));
  std::map<std::uint32_t, std::size_t> part_of_node;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const auto [known, is_new] = part_of_node.try_emplace(topology.vertices[run[i]].node, i / part);
    if (known->second != i / part) return none;
  }
  for (std::size_t begin = part; begin < run.size(); begin += part)
    if (places_of(topology, nodes, run.subspan(begin, part)) != first) return none;
  if (!are_nodes_alike(topology, nodes, run)) return none;
  if (is_wide_outside(topology)) return {.kept = kept};
  return is_tree_outside(topology) ? ReplicaFold{.kept = kept, .share_outside = true} : none;
}

}  // namespace overtake
