#include "sim/lane_builder.h"

#include <utility>

namespace overtake {

std::uint32_t LaneBuilder::add(SendLane lane, std::vector<Need> needs) {
  if (lane.from != kNone) lane.path = paths_.between(group_.devices[lane.from], group_.devices[lane.to]);
  lanes_.push_back(lane);
  needs_.push_back(std::move(needs));
  return static_cast<std::uint32_t>(lanes_.size() - 1);
}

std::uint32_t LaneBuilder::add_ring(std::span<const std::uint32_t> order, std::uint32_t steps, std::uint32_t shards,
                                    std::uint32_t shard, const std::vector<std::vector<std::uint32_t>>& after) {
  const auto n = static_cast<std::uint32_t>(order.size()), first = static_cast<std::uint32_t>(lanes_.size());
  for (std::uint32_t i = 0; i < n; ++i) {
    std::vector<Need> needs{{first + (i + n - 1) % n, 0}};
    if (!after.empty())
      for (const std::uint32_t lane : after[i]) needs.push_back({lane, kWhole});
    add({.from = order[i],
         .to = order[(i + 1) % n],
         .steps = steps,
         .shards = shards,
         .shard = shard,
         .pieces = n,
         .place = i},
        std::move(needs));
  }
  return first;
}

LaneTable LaneBuilder::finish(Algorithm algorithm) {
  LaneTable table;
  table.algorithm = algorithm;
  const std::uint32_t n = ranks();
  std::vector<std::uint32_t> waiting(lanes_.size() + 1, 0);
  for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
    lanes_[l].first_need = static_cast<std::uint32_t>(table.needs.size());
    lanes_[l].need_count = static_cast<std::uint32_t>(needs_[l].size());
    table.needs.insert(table.needs.end(), needs_[l].begin(), needs_[l].end());
  }
  for (const Need& need : table.needs) ++lanes_[need.lane].wake_count;
  for (std::uint32_t l = 0, first = 0; l < lanes_.size(); first += lanes_[l++].wake_count)
    waiting[l] = lanes_[l].first_wake = first;
  table.wakes.resize(table.needs.size());
  for (std::uint32_t l = 0; l < lanes_.size(); ++l)
    for (const Need& need : needs_[l]) table.wakes[waiting[need.lane]++] = l;
  table.first_lane.assign(n + 1, 0);
  table.work.assign(n, 0);
  for (const SendLane& lane : lanes_) {
    if (lane.from == kNone) continue;
    ++table.first_lane[lane.from + 1];
    ++table.work[lane.from];
    ++table.work[lane.to];
  }
  for (std::uint32_t r = 0; r < n; ++r) table.first_lane[r + 1] += table.first_lane[r];
  table.rank_lanes.resize(table.first_lane[n]);
  std::vector<std::uint32_t> next(table.first_lane.begin(), table.first_lane.end() - 1);
  for (std::uint32_t l = 0; l < lanes_.size(); ++l)
    if (lanes_[l].from != kNone) table.rank_lanes[next[lanes_[l].from]++] = l;
  table.lanes = std::move(lanes_);
  return table;
}

}  // namespace overtake
