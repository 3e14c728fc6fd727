#include "plan/divide/usual_transfer.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace overtake {

namespace {

// What a block hands on to the next: the median.
std::int64_t usual_bytes(const BlockGraph& blocks) {
  std::vector<std::int64_t> crossing;
  for (std::size_t i = 0; i + 1 < blocks.blocks.size(); ++i) {
    std::int64_t bytes = 0;
    for (const BufferId b : blocks.graph.writes(blocks.blocks[i].forward)) {
      const auto reads = blocks.graph.reads(blocks.blocks[i + 1].forward);
      if (std::ranges::find(reads, b) != reads.end()) bytes += blocks.graph.bytes(b);
    }
    crossing.push_back(bytes);
  }
  if (crossing.empty()) return 0;
  std::ranges::sort(crossing);
  return crossing[crossing.size() / 2];
}

}  // namespace

std::int64_t usual_transfer_ns(const BlockGraph& blocks, const Cluster& cluster, const Topology& topology,
                               Protocol protocol, std::uint32_t from, std::uint32_t to) {
  return usual_transfers_ns(blocks, cluster, topology, protocol, {from, to}, 2)[0][1];
}

std::vector<std::vector<std::int64_t>> usual_transfers_ns(const BlockGraph& blocks, const Cluster& cluster,
                                                          const Topology& topology, Protocol protocol,
                                                          const std::vector<std::uint32_t>& devices,
                                                          std::uint32_t stages) {
  std::vector<std::vector<std::int64_t>> ns(stages, std::vector<std::int64_t>(stages, 0));
  const std::int64_t bytes = usual_bytes(blocks);
  if (bytes == 0) return ns;
  FlowNetwork network(topology.links);
  Paths paths(topology, network);
  for (std::size_t replica = 0; replica < devices.size(); replica += stages) {
    for (std::uint32_t from = 0; from < stages; ++from) {
      for (std::uint32_t to = 0; to < stages; ++to) {
        if (from == to) continue;
        const DeviceGroup pair = make_group(cluster, paths, {devices[replica + from], devices[replica + to]});
        ns[from][to] = std::max(ns[from][to],
                                choose(pair, Operation::send_recv, bytes, Algorithm::automatic, protocol).predicted_ns);
      }
    }
  }
  return ns;
}

std::vector<std::int64_t> copy_sums_ns(const BlockGraph& blocks, const Cluster& cluster, const Topology& topology,
                                       const ClusterOptions& options, const std::vector<std::uint32_t>& devices,
                                       std::uint32_t stages) {
  std::vector<std::int64_t> bytes;
  std::int64_t all = 0;
  for (const BlockGraph::Block& block : blocks.blocks) {
    bytes.push_back(0);
    for (const BufferId b : block.reduced) bytes.back() += blocks.graph.bytes(b);
    all += bytes.back();
  }
  if (all == 0) return {};
  // Sums go in buckets of many blocks: what a large one takes, in proportion.
  FlowNetwork network(topology.links);
  Paths paths(topology, network);
  std::int64_t ns = 0;
  for (std::size_t replica = 0; replica < devices.size(); replica += stages)
    for (std::uint32_t d = 0; d < stages / 2; ++d) {
      const DeviceGroup pair = make_group(cluster, paths, {devices[replica + d], devices[replica + stages - 1 - d]});
      ns = std::max(ns, choose(pair, Operation::all_reduce, all, options.algorithm, options.protocol).predicted_ns);
    }
  std::vector<std::int64_t> sums;
  for (const std::int64_t b : bytes)
    sums.push_back(std::llround(static_cast<double>(ns) * static_cast<double>(b) / static_cast<double>(all)));
  return sums;
}

}  // namespace overtake
