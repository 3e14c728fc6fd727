#pragma once
// Puts the lanes of a collective together, one by one.

#include <cstdint>
#include <span>
#include <vector>

#include "sim/collective_lanes.h"

namespace overtake {

class LaneBuilder {
 public:
  LaneBuilder(const DeviceGroup& group, Paths& paths) : group_(group), paths_(paths) {}

  const DeviceGroup& group() const { return group_; }
  std::uint32_t ranks() const { return group_.size(); }

  // The path is that between the ranks. Gives the lane's number.
  std::uint32_t add(SendLane lane, std::vector<Need> needs);

  // A ring through `order`, over one of `shards` parts: `steps` pieces of 1/n each. The lane out of order[i] is the
  // result plus i, and begins when `after[i]`, if given, are whole.
  std::uint32_t add_ring(std::span<const std::uint32_t> order, std::uint32_t steps, std::uint32_t shards,
                         std::uint32_t shard, const std::vector<std::vector<std::uint32_t>>& after = {});

  LaneTable finish(Algorithm algorithm);

 protected:
  const DeviceGroup& group_;
  Paths& paths_;
  std::vector<SendLane> lanes_;
  std::vector<std::vector<Need>> needs_;
};

}  // namespace overtake
