#include "plan/divide/usual_transfer.h"

#include <algorithm>
#include <vector>

namespace overtake {

std::int64_t usual_transfer_ns(const BlockGraph& blocks, const Cluster& cluster, const Topology& topology,
                               Protocol protocol, std::uint32_t from, std::uint32_t to) {
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
  const std::int64_t bytes = crossing[crossing.size() / 2];
  if (bytes == 0) return 0;
  FlowNetwork network(topology.links);
  Paths paths(topology, network);
  const DeviceGroup pair = make_group(cluster, paths, {from, to});
  return choose(pair, Operation::send_recv, bytes, Algorithm::automatic, protocol).predicted_ns;
}

}  // namespace overtake
