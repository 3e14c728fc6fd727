#pragma once
// A collective as lanes: each sends a number of pieces, one after the other, from one rank to another, and waits for
// pieces of other lanes. Memory is per lane, not per piece: a ring of n ranks has n lanes of 2(n - 1) pieces.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "overtake/cluster_options.h"
#include "sim/device_group.h"

namespace overtake {

enum class Operation : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send_recv, all_to_all };
std::string_view to_string(Operation);
std::string_view to_string(Algorithm);

inline constexpr std::uint8_t kWhole = 255;

// An all-to-all is a message from each rank to each other, as NCCL's users write it (github.com/NVIDIA/nccl/pull/316:
// a group of sends and receives). So many of a rank's are under way at once: a channel serves 8 peers at most (S.
// Jeaugey, github.com/NVIDIA/nccl/issues/665), and of 8 channels each peer has 2 (log in issues/1189).
inline constexpr std::uint32_t kPeersAtOnce = 8 * 8 / 2;
inline constexpr std::uint32_t kMostPeers = 2048;  // of a group: lanes are as many as pairs

// Whether an operation has one way to do it, whatever algorithm others take.
constexpr bool is_of_messages(Operation o) { return o == Operation::send_recv || o == Operation::all_to_all; }

// Piece s of the waiting lane needs s + lag pieces of `lane`, or with kWhole all of them.
struct Need {
  std::uint32_t lane = 0;
  std::uint8_t lag = 0;
};

struct SendLane {
  PathId path = 0;
  std::uint32_t from = kNone;  // rank; kNone as both: a switch works for all, when all are ready
  std::uint32_t to = kNone;
  std::uint32_t steps = 1;  // 0: as many pieces as the run streams in
  // Of the collective's bytes, one of `shards` parts, cut into `pieces` (0: as `steps`); piece s is number place - s.
  // With `again`, that and an n-th of it more.
  std::uint32_t shards = 1, shard = 0;
  std::uint32_t pieces = 1, place = 0;
  std::uint32_t again = 0;
  std::uint32_t reducer = kNone;  // in DeviceGroup::rail_reducers, or 0 for DeviceGroup::reducer
  std::uint32_t first_need = 0, need_count = 0;
  std::uint32_t first_wake = 0, wake_count = 0;
};

struct LaneTable {
  Algorithm algorithm = Algorithm::ring;
  std::vector<SendLane> lanes;
  std::vector<Need> needs;
  std::vector<std::uint32_t> wakes;       // lanes that wait for a lane
  std::vector<std::uint32_t> first_lane;  // per rank, into rank_lanes; one more at the end
  std::vector<std::uint32_t> rank_lanes;  // by the rank that sends
  std::vector<std::uint32_t> work;        // per rank: lanes it sends on and lanes it receives on

  std::span<const Need> needs_of(const SendLane& l) const {
    return std::span(needs).subspan(l.first_need, l.need_count);
  }
  std::span<const std::uint32_t> wakes_of(const SendLane& l) const {
    return std::span(wakes).subspan(l.first_wake, l.wake_count);
  }
  std::span<const std::uint32_t> lanes_of(std::uint32_t rank) const {
    return std::span(rank_lanes).subspan(first_lane[rank], first_lane[rank + 1] - first_lane[rank]);
  }
};

// Why a group cannot do an operation in that way ("the nodes have different numbers of devices"); empty when it can.
std::string_view cannot_run(const DeviceGroup& group, Operation operation, Algorithm algorithm);

// `root` is the rank that has the data of a broadcast; send_recv is from rank 0 to rank 1. cannot_run must be empty.
LaneTable make_lanes(const DeviceGroup& group, Paths& paths, Operation operation, Algorithm algorithm,
                     std::uint32_t root);

}  // namespace overtake
