#include "overtake/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/units.h"
#include "machine/described_costs.h"

namespace overtake {
namespace {

// Communication's share of a rank's cores, in the simulator's terms: so many of a thousand.
constexpr std::int32_t kAllCores = 1000;
// What of a transfer is under way and cannot be overtaken any more, as comm/gloo/pace.h has it.
constexpr std::int64_t kChunk = 256 << 10, kLeastChunks = 6, kMostChunks = 24;
constexpr double kUnderWay = 0.012;  // seconds
// Between virtual GPUs that are not slowed down: a copy within a GPU's memory, roughly.
constexpr std::int64_t kCopyBytesPerS = 1'000'000'000'000;
// The first step is another one than those that follow.
constexpr int kStepsInARow = 4;

}  // namespace

Machine described_machine(Cluster cluster, bool tf32) {
  Machine machine;
  machine.kind = Machine::Kind::described;
  machine.steps = 0;
  machine.costs = std::make_shared<DescribedCosts>(cluster, tf32);
  machine.cluster = std::move(cluster);
  set_network(machine, machine.cluster.network);
  return machine;
}

void set_network(Machine& machine, NetworkKind network) {
  machine.cluster.network = network;
  machine.topology = make_topology(machine.cluster);
  machine.options.protocol = network == NetworkKind::ideal ? Protocol::ideal : Protocol::automatic;
}

Machine machine_of_ranks(const LinkTimes& link, const std::vector<double>& shares, unsigned threads) {
  const auto busy = static_cast<std::int32_t>(std::lround(kAllCores * link.busy_cores / std::max(1u, threads)));
  Machine machine;
  machine.kind = Machine::Kind::ranks;
  machine.steps = kStepsInARow;
  machine.cluster.name = "ranks";
  machine.cluster.devices.push_back(
      {.name = "cpu", .sms = kAllCores, .communication = {.sms = busy, .in_network_sms = busy, .memory_factor = 0}});
  machine.cluster.nodes.push_back(
      {.name = "rank", .count = static_cast<std::int32_t>(shares.size()), .devices = {{.device = "cpu", .count = 1}}});
  machine.cluster.switches.push_back({.node = "", .name = "network"});
  machine.cluster.links.push_back({.from = {.node = "rank", .name = "cpu"},
                                   .to = {.node = "", .name = "network"},
                                   .bandwidth = link.bytes_per_s,
                                   .latency_ns = link.latency_ns / 2});
  machine.topology = make_topology(machine.cluster);
  const double under_way = kUnderWay * static_cast<double>(link.bytes_per_s) / kChunk;
  machine.options.speeds = shares;
  machine.options.algorithm = Algorithm::ring;
  machine.options.protocol = Protocol::ideal;
  machine.options.chunk_bytes =
      kChunk * std::clamp<std::int64_t>(std::llround(std::min(under_way, 1e6)), kLeastChunks, kMostChunks);
  machine.text = fmt::format("the link moves {}/s each way, {:.3f} ms late, and keeps {:.0f} % of a rank's cores busy",
                             format_bytes(link.bytes_per_s), static_cast<double>(link.latency_ns) * 1e-6,
                             100.0 * std::min(busy, kAllCores) / kAllCores);
  return machine;
}

// A link for each pair of them, and nothing that forwards: so nodes of their own.
Machine machine_of_virtual_gpus(std::uint32_t gpus, const VirtualLink& link) {
  Machine machine;
  machine.kind = Machine::Kind::virtual_gpus;
  machine.cluster.name = "virtual GPUs";
  machine.cluster.devices.push_back({.name = "part"});
  const auto node = [](std::uint32_t i) { return fmt::format("gpu{}", i); };
  for (std::uint32_t i = 0; i < gpus; ++i) {
    machine.cluster.nodes.push_back({.name = node(i), .count = 1, .devices = {{.device = "part", .count = 1}}});
    for (std::uint32_t j = 0; j < i; ++j)
      machine.cluster.links.push_back({.from = {.node = node(j), .name = "part"},
                                       .to = {.node = node(i), .name = "part"},
                                       .kind = LinkKind::nvlink,
                                       .bandwidth = link.bytes_per_s > 0 ? link.bytes_per_s : kCopyBytesPerS,
                                       .latency_ns = link.latency_ns});
  }
  machine.topology = make_topology(machine.cluster);
  machine.options.algorithm = Algorithm::ring;
  machine.options.protocol = Protocol::ideal;
  machine.options.overlap_slows = false;
  return machine;
}

std::vector<KindCount> kinds_of(const Machine& machine, const std::vector<std::uint32_t>& devices) {
  if (!machine.has_devices()) return {{.kind = 0, .devices = 1}};
  std::map<std::uint32_t, std::int64_t> counts;
  for (const std::uint32_t d : devices) ++counts[machine.topology.vertices[d].type];
  std::vector<KindCount> kinds;
  for (const auto& [kind, count] : counts) kinds.push_back({kind, count});
  return kinds;
}

}  // namespace overtake
