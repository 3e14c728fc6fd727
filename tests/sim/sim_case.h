#pragma once
// Small clusters, and a collective run on one from start to end.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "sim/collective.h"

namespace overtake::tests {

// `nodes` nodes of `local` devices with an inner switch each and a rail per place, 100 B/ns inside and 10 outside.
// `reduction` holds the keys of switches that add: inside for one node, of the rails for several.
inline Cluster small_cluster(int nodes, int local, const std::string& reduction = "", int inside_ns = 300,
                             int outside_ns = 1000) {
  std::string text = fmt::format(R"([device.d]
f32 = "1 TFLOP/s"
memory = [{{ capacity = "1 GB", bandwidth = "1000 GB/s" }}]
sms = 100
[node.n]
count = {}
devices = {{ d = {} }}
[node.n.switch.inner]
{}
[[link]]
between = ["n/d", "n/inner"]
kind = "NVLink"
bandwidth = "100 GB/s"
latency = "{} ns"
)",
                                 nodes, local, nodes == 1 ? reduction : "", inside_ns);
  if (nodes > 1)
    text += fmt::format(R"([switch.leaf]
count = {}
{}
[switch.spine]
[[link]]
between = ["n/d", "leaf"]
kind = "InfiniBand"
wiring = "rail"
bandwidth = "10 GB/s"
latency = "{} ns"
[[link]]
between = ["leaf", "spine"]
kind = "InfiniBand"
bandwidth = "10000 GB/s"
latency = "0 ns"
)",
                        local, reduction, outside_ns);
  return parse_cluster(text, "test");
}

inline constexpr std::int64_t kWayNs = 600;  // between two devices of small_cluster(1, n): two links

// Max-plus: a piece goes out when the rank is there, its last one is out, and the one before has come in. `d` are the
// times of a piece out of each rank, `a` the latency; the result is when each rank has sent and received all.
inline std::vector<std::int64_t> ring_ends(const std::vector<std::int64_t>& ready, const std::vector<std::int64_t>& d,
                                           std::int64_t a) {
  const std::size_t n = ready.size();
  std::vector<std::int64_t> begin = ready, next(n);
  const auto arrived = [&](std::size_t r) { return begin[(r + n - 1) % n] + d[(r + n - 1) % n] + a; };
  for (std::size_t step = 1; step < 2 * (n - 1); ++step) {
    for (std::size_t r = 0; r < n; ++r) next[r] = std::max({begin[r] + d[r], arrived(r)});
    begin = next;
  }
  for (std::size_t r = 0; r < n; ++r) next[r] = std::max(begin[r] + d[r], arrived(r));
  return next;
}

// The simulator over one cluster, with a loop around it.
struct Simulation {
  explicit Simulation(Cluster c)
      : cluster(std::move(c)),
        topology(make_topology(cluster)),
        network(topology.links),
        collectives(cluster, topology, network) {}

  // A group of all devices.
  GroupId all() {
    std::vector<std::uint32_t> devices(topology.device_count);
    for (std::uint32_t d = 0; d < devices.size(); ++d) devices[d] = d;
    return collectives.add_group(std::move(devices));
  }

  // Until nothing is left; the log has every report with its time.
  std::int64_t run() {
    std::int64_t last = 0;
    while (collectives.next_time() != kNever) {
      last = collectives.next_time();
      for (const CollectiveReport& r : collectives.advance(last)) {
        if (r.is_last) ends.emplace_back(r.collective, last);
        log += fmt::format("{} collective {} rank {}{}\n", last, r.collective, r.rank, r.is_last ? " last" : "");
      }
    }
    return last;
  }

  std::int64_t time_of(const CollectiveSpec& spec) {
    const CollectiveId id = collectives.add(spec);
    collectives.ready_all(0, id);
    return run();
  }

  std::int64_t end_of(CollectiveId id) const {
    for (const auto& [collective, time] : ends)
      if (collective == id) return time;
    return -1;
  }

  // Bytes that left a device, on all its links.
  std::int64_t sent(std::uint32_t device) const { return sum(device, true); }
  std::int64_t received(std::uint32_t device) const { return sum(device, false); }

  Cluster cluster;
  Topology topology;
  FlowNetwork network;
  Collectives collectives;
  std::vector<std::pair<CollectiveId, std::int64_t>> ends;
  std::string log;

 private:
  std::int64_t sum(std::uint32_t device, bool leaves) const {
    std::int64_t bytes = 0;
    for (LinkId l = 0; l < topology.links.size(); ++l)
      if ((leaves ? topology.links[l].from : topology.links[l].to) == device) bytes += network.link_bytes(l);
    return bytes;
  }
};

}  // namespace overtake::tests
