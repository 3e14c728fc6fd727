#include "passes/parallel/simulated_choice.h"

#include <algorithm>
#include <set>
#include <vector>

namespace overtake {
namespace {

constexpr std::uint32_t kGrid = 16;  // values of k tried at first

}  // namespace

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

std::uint32_t most_first_k(const PipelineLayout& layout) {
  std::uint32_t most = 0;
  for (std::uint32_t c = 0; c < layout.chunks(); ++c)
    most = std::max(most, layout.first_stage[c + 1] - layout.first_stage[c]);
  return most;
}

void search_first_k(std::uint32_t most, const std::function<bool(std::uint32_t)>& is_best) {
  std::set<std::uint32_t> tried;
  std::uint32_t best = 0;
  const auto try_k = [&](std::uint32_t k) {
    if (k <= most && tried.insert(k).second && is_best(k)) best = k;
  };
  std::uint32_t step = std::max(1u, most / kGrid);
  for (std::uint32_t k = 0; k <= most; k += step) try_k(k);
  try_k(most);
  while (step > 1) {
    step = (step + 1) / 2;
    const std::uint32_t middle = best;
    for (const std::uint32_t k : {middle >= 2 * step ? middle - 2 * step : 0, middle >= step ? middle - step : 0,
                                  middle + step, middle + 2 * step})
      try_k(k);
  }
}

}  // namespace overtake
