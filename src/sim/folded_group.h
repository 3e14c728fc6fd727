#pragma once
// A group of devices of which only some are simulated, because all others do the same at the same time: replicas of a
// step on alike nodes. Of its collectives only the flows that the simulated nodes send or receive are there; they take
// what the collective of the whole group takes.

#include <cstdint>
#include <vector>

#include "sim/collective_formulas.h"
#include "sim/collective_lanes.h"

namespace overtake {

struct FoldedMembers {
  // Those that are simulated, by rank: whole nodes, as far as the group has a part in them. Behind them their
  // counterparts, in the same order, copy by copy.
  std::vector<std::uint32_t> devices;
  std::uint32_t present = 0;  // how many are simulated
  // Links between switches outside the nodes have this share's bandwidth only (DeviceCopies::share_outside): what comes
  // over them from a copy counts as what goes out from here to the next.
  bool shares_outside = false;
};

class FoldedGroup {
 public:
  // The group and the paths must outlive this.
  FoldedGroup(const DeviceGroup& group, Paths& paths, const FoldedMembers& members);

  const std::vector<std::uint32_t>& present() const { return present_; }
  // A lane for each hop of the group's rings that begins or ends at a device that is present; an end elsewhere is no
  // rank. All begin when all present ranks are ready.
  const LaneTable& table() const { return table_; }

  // What a lane of the table moves, in one piece, of a collective of so many bytes: rings what a ring of flows moves
  // (CollectiveSpec::is_fluid), other algorithms their bytes at the rate at which they end when predict_ns() says.
  struct Flow {
    std::int64_t bytes = 0;
    double payload = 1;          // share of what goes over the links that these bytes are
    std::int64_t extra_ns = 0;   // beyond the latency of the path
    double bytes_per_ns = 1e18;  // over the links
  };
  Flow flow(std::uint32_t lane, Operation operation, const Choice& choice, std::int64_t bytes) const;

 private:
  const DeviceGroup& group_;
  Paths& paths_;
  std::vector<std::uint32_t> present_;
  LaneTable table_;
  std::vector<char> crosses_;  // per lane: whether it leads from one node to another
};

}  // namespace overtake
