#include "sim/folded_group.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sim/nccl_tuning.h"

namespace overtake {
namespace {

// What a rank sends on one hop of one of `rings` rings. Algorithms that treat the inside of nodes apart send something
// else across than inside.
double bytes_of_hop(const DeviceGroup& group, Operation operation, Algorithm algorithm, std::int64_t bytes,
                    bool crosses) {
  const double rings = static_cast<double>(group.rings.size()), all = static_cast<double>(bytes);
  if (algorithm == Algorithm::nvls_tree) {
    const double local = static_cast<double>(group.nodes[0].size());
    return all / rings * (crosses ? std::min(2.0, static_cast<double>(group.nodes.size()) / 2) : 1 + 1 / local);
  }
  const bool is_by_node =
      algorithm == Algorithm::hierarchical || (algorithm == Algorithm::in_network && !group.reducer.has_value());
  if (!is_by_node || group.nodes.size() < 2) return wire_bytes(group, operation, algorithm, bytes) / rings;
  const double nodes = static_cast<double>(group.nodes.size()), local = static_cast<double>(group.nodes[0].size());
  const double passes = operation == Operation::all_reduce ? 2 : 1;
  if (!crosses) return passes * all * (local - 1) / local / rings;
  return all * (algorithm == Algorithm::in_network ? 1 : passes * (nodes - 1) / nodes) / rings;
}

}  // namespace

FoldedGroup::FoldedGroup(const DeviceGroup& group, Paths& paths, const FoldedMembers& members)
    : group_(group), paths_(paths), present_(members.devices.begin(), members.devices.begin() + members.present) {
  const Topology& topology = paths.topology();
  std::map<std::uint32_t, std::uint32_t> place;  // of a device among the members
  for (std::uint32_t i = 0; i < members.devices.size(); ++i) place[members.devices[i]] = i;
  const auto leads_outside = [&](PathId path) {
    return std::ranges::any_of(paths.network().path_links(path),
                               [&](LinkId l) { return is_outside(topology, topology.links[l]); });
  };
  table_.work.assign(present_.size(), 0);
  table_.first_lane.assign(present_.size() + 1, 0);
  const auto rings = static_cast<std::uint32_t>(group.rings.size()), n = group.size();
  for (std::uint32_t ring = 0; ring < rings; ++ring)
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t from = group.devices[group.rings[ring][i]],
                          to = group.devices[group.rings[ring][(i + 1) % n]];
      const std::uint32_t sender = place[from], receiver = place[to];
      const bool is_sent_here = sender < members.present, is_for_here = receiver < members.present;
      if (!is_sent_here && !is_for_here) continue;
      SendLane lane{.path = paths.between(from, to), .shards = rings, .shard = ring, .pieces = n};
      const bool is_shared = members.shares_outside && leads_outside(lane.path);
      if (is_shared && !is_sent_here) continue;
      if (is_sent_here) lane.from = sender;
      if (is_for_here || is_shared) lane.to = receiver % members.present;
      for (const std::uint32_t r : {lane.from, lane.to})
        if (r != kNone) ++table_.work[r];
      table_.lanes.push_back(lane);
      crosses_.push_back(topology.vertices[from].node != topology.vertices[to].node);
    }
}

FoldedGroup::Flow FoldedGroup::flow(std::uint32_t index, Operation operation, const Choice& choice,
                                    std::int64_t bytes) const {
  const SendLane& lane = table_.lanes[index];
  const auto [algorithm, protocol, predicted] = choice;
  const double payload = nccl::payload_share(group_, paths_.kind(lane.path), algorithm, protocol, bytes);
  const std::int64_t before = base_ns(group_, operation, algorithm, protocol, bytes);
  Flow flow;
  std::int64_t latency = 0;
  if (algorithm == Algorithm::ring) {
    const std::int64_t shard = bytes / lane.shards + (lane.shard < bytes % lane.shards);
    flow.bytes = shard * (operation == Operation::all_reduce ? 2 : 1) * (lane.pieces - 1) / lane.pieces;
    latency = ring_latency_ns(group_, operation, protocol, bytes);
  } else {
    flow.bytes = std::llround(bytes_of_hop(group_, operation, algorithm, bytes, crosses_[index] != 0));
    latency =
        predict_ns(group_, operation, algorithm, protocol, 0) - base_ns(group_, operation, algorithm, protocol, 0);
  }
  flow.payload = payload;
  if (algorithm != Algorithm::ring) {
    const std::int64_t sending = predict_ns(group_, operation, algorithm, protocol, bytes) - before - latency;
    if (sending > 0 && flow.bytes > 0)
      flow.bytes_per_ns = static_cast<double>(flow.bytes) / std::min(1.0, payload) / static_cast<double>(sending);
  }
  flow.extra_ns = std::max<std::int64_t>(0, latency - paths_.network().path_latency_ns(lane.path));
  return flow;
}

}  // namespace overtake
