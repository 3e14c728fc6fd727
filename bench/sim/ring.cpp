// How fast the simulator is: one ring all-reduce with jittered starts, every piece of every rank a flow of its own.
//
//   build/release/bench_sim [--ranks 1024] [--bytes 67108864] [--rounds 5]
//
// Two networks: a ring of cables (what ASTRA-sim's analytical backend was measured on: 0.39 million events/s on a 2.8
// GHz core), and DGX H100 nodes, one ring on one rail of links through switches. An event is the start or the arrival
// of a flow.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "sim/collective.h"

namespace {

using namespace overtake;

// Devices in a circle, each with a cable to the next, and a switch so that all reach all.
Topology circle(std::uint32_t ranks) {
  Topology t;
  t.device_count = t.node_count = ranks;
  for (std::uint32_t r = 0; r < ranks; ++r) t.vertices.push_back({fmt::format("gpu.{}", r), 0, r});
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::uint32_t next = (r + 1) % ranks;
    t.links.push_back({r, next, LinkKind::nvlink, 50'000'000'000, 500});
    t.links.push_back({next, r, LinkKind::nvlink, 50'000'000'000, 500});
  }
  return t;
}

struct Result {
  double seconds = 0;
  std::uint64_t events = 0;
  std::int64_t simulated_ns = 0;
};

Result run(const Cluster& cluster, const Topology& topology, std::uint32_t ranks, std::int64_t bytes) {
  FlowNetwork network(topology.links);
  Collectives collectives(cluster, topology, network);
  const std::uint32_t stride = topology.device_count / ranks;
  std::vector<std::uint32_t> devices;
  for (std::uint32_t r = 0; r < ranks; ++r) devices.push_back(r * stride);
  const GroupId group = collectives.add_group(std::move(devices));
  const CollectiveId id =
      collectives.add({.group = group, .bytes = bytes, .algorithm = Algorithm::ring, .protocol = Protocol::ideal});
  std::vector<std::pair<std::int64_t, std::uint32_t>> starts;
  for (std::uint32_t r = 0; r < ranks; ++r) starts.emplace_back(philox({1, 2}, r, 0)[0] % 100'000, r);
  std::sort(starts.begin(), starts.end());

  Result result;
  const std::clock_t begin = std::clock();  // of this process, whatever else runs
  std::size_t next = 0;
  while (true) {
    const std::int64_t start = next < starts.size() ? starts[next].first : kNever;
    const std::int64_t time = std::min(start, collectives.next_time());
    if (time == kNever) break;
    result.simulated_ns = time;
    collectives.advance(time);
    for (; next < starts.size() && starts[next].first == time; ++next) collectives.ready(time, id, starts[next].second);
  }
  result.seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  result.events = network.event_count();
  return result;
}

std::int64_t option(int argc, char** argv, const char* name, std::int64_t fallback) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], name) == 0) return std::atoll(argv[i + 1]);
  return fallback;
}

}  // namespace

int main(int argc, char** argv) {
  const auto ranks =
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(option(argc, argv, "--ranks", 1024), 2, 1 << 16));
  const std::int64_t bytes = option(argc, argv, "--bytes", 64 << 20), rounds = option(argc, argv, "--rounds", 5);
  const Cluster dgx = load_cluster(fmt::format("dgx-h100:{}", ranks));
  const Topology cables = circle(ranks), switches = make_topology(dgx);
  for (const auto& [name, topology] :
       {std::pair{"ring of cables", &cables}, std::pair{"through switches", &switches}}) {
    double best = 0;
    Result result;
    for (std::int64_t i = 0; i < rounds; ++i) {
      result = run(dgx, *topology, ranks, bytes);
      best = std::max(best, static_cast<double>(result.events) / result.seconds);
    }
    fmt::print("{}: {} ranks, {} events, {:.3f} ms simulated, {:.2f} million events/s of CPU time (best of {})\n", name,
               ranks, result.events, static_cast<double>(result.simulated_ns) / 1e6, best / 1e6, rounds);
  }
  return 0;
}
