#pragma once
// Collectives of groups of devices, as flows in a network. A group works on one collective at a time. A collective with
// chunks is one stream: it starts up once, and its algorithm and protocol are chosen for all of it. Where a more urgent
// one becomes ready (the oldest first among equals), it ends at the next border between chunks, and what is left of it
// starts up again when nothing more urgent is ready.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/collective_formulas.h"
#include "sim/events.h"
#include "sim/folded_group.h"

namespace overtake {

using GroupId = std::uint32_t;
using CollectiveId = std::uint32_t;

struct CollectiveSpec {
  GroupId group = 0;
  Operation operation = Operation::all_reduce;
  std::int64_t bytes = 0;  // of the whole vector, as in predict_ns
  Algorithm algorithm = Algorithm::automatic;
  Protocol protocol = Protocol::automatic;
  std::uint8_t priority = 0;       // higher first, among the collectives of a group and among flows in the network
  std::int64_t chunk_bytes = 0;    // others may go first after each so many bytes; 0: not before the end
  std::uint32_t communicator = 0;  // of send_recv: devices that NCCL's communicator has; 0: the two
  std::uint32_t root = 0;          // rank, of a broadcast
  // The steps of a ring as one flow per rank, begun when all are ready: n flows instead of 2n(n - 1); of a tree one per
  // edge. The time is the same where all hops are alike, and within 8 % on the presets.
  bool is_fluid = false;
};

struct CollectiveReport {
  CollectiveId collective = 0;
  std::uint32_t rank = 0;  // which has sent and received all
  bool is_last = false;    // of its ranks
};

// What communication takes from a device while it runs: SMs it holds, and memory bandwidth in bytes/s, over the time it
// is predicted to take on average.
struct DeviceLoad {
  std::int32_t sms = 0;
  double memory_bytes_per_s = 0;
  bool operator==(const DeviceLoad&) const = default;
};

class Collectives {
 public:
  // All must outlive this; all flows of the network must be started by it.
  Collectives(const Cluster& cluster, const Topology& topology, FlowNetwork& network);
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  GroupId add_group(std::vector<std::uint32_t> devices);
  // A group of which only some devices are simulated; ranks are theirs.
  GroupId add_folded_group(const FoldedMembers& members);
  const DeviceGroup& group(GroupId id) const { return groups_[id]->group; }

  // Makes a collective known; nothing happens before ranks are ready. A user error where it cannot run as forced.
  CollectiveId add(const CollectiveSpec& spec);
  void ready(std::int64_t now, CollectiveId id, std::uint32_t rank);
  void ready_all(std::int64_t now, CollectiveId id);

  std::int64_t next_time();  // kNever when nothing is under way
  // Does all until `now`, which is not after next_time(); gives the ranks that ended.
  std::span<const CollectiveReport> advance(std::int64_t now);

  const Choice& choice(CollectiveId id) const { return collectives_[id].choice; }
  const DeviceLoad& load(std::uint32_t device) const { return loads_[device]; }
  // Devices whose load changed since the last call.
  std::vector<std::uint32_t> take_changed();
  // Computation beside it leaves a device's links this share of their bandwidth; 0 stops them.
  void set_speed(std::int64_t now, std::uint32_t device, double share);

 private:
  struct Collective {
    CollectiveSpec spec;
    Choice choice;
    std::int64_t bytes_left = 0;
    std::uint32_t ready_count = 0;
    std::vector<char> is_ready;  // per rank
  };
  struct LaneState {
    std::uint32_t started = 0, arrived = 0, steps = 0;  // pieces
    bool is_sending = false;
    // Pieces of one step of a ring, which wait for the whole step before; borders between chunks lie between pieces.
    std::uint32_t parts = 1;
    bool is_fluid = false;     // its pieces wait for none of other lanes
    std::uint32_t larger = 0;  // so many steps have a byte more than `bytes`
    std::int64_t bytes = 0;    // of a step; of a piece where the run is cut
    std::int64_t sent = 0;     // of the pieces that have started
    std::int64_t extra_ns = 0;
    double limit = 1e18;  // bytes/ns
  };
  // What a group works on: what is left of a collective, or less where it is cut.
  struct Run {
    CollectiveId collective = kNone;  // none: idle
    const LaneTable* table = nullptr;
    std::int64_t bytes = 0;
    bool is_cut = false;
    std::int64_t base_ns = 0;
    double wire_bytes_per_s = 0;  // of each rank, on average
    std::uint8_t priority = 0;
    bool waits_for_all = false;
    std::vector<LaneState> lanes;
    std::vector<std::uint32_t> work;  // per rank: what it has not started, sent or received yet
    std::vector<char> is_started;     // per rank
    std::uint32_t started_ranks = 0, open_ranks = 0;
  };
  struct GroupState {
    DeviceGroup group;
    std::unique_ptr<FoldedGroup> folded;  // none: all of its devices are simulated
    const std::vector<std::uint32_t>& devices() const { return folded ? folded->present() : group.devices; }  // by rank
    std::uint32_t ranks() const { return static_cast<std::uint32_t>(devices().size()); }
    std::map<std::tuple<Operation, Algorithm, std::uint32_t>, LaneTable> tables;
    std::set<std::pair<int, CollectiveId>> waiting;  // (-priority, id) with a rank ready and bytes left
    Run run;
  };

  void begin_run(std::int64_t now, GroupState& state, GroupId id);
  void cut_at_border(GroupState& state);
  std::int64_t piece_bytes(const Run& run, std::uint32_t lane) const;
  std::pair<int, CollectiveId> place_of(CollectiveId id) const { return {-int{collectives_[id].spec.priority}, id}; }
  void fill_lane(const GroupState& state, const Collective& collective, std::uint32_t lane);
  void begin_rank(std::int64_t now, GroupId id, std::uint32_t rank);
  void try_send(std::int64_t now, GroupId id, std::uint32_t lane);
  void note(std::int64_t now, const FlowReport& report);
  void work_done(std::int64_t now, GroupId id, std::uint32_t rank);
  void end_run(std::int64_t now, GroupId id);
  DeviceLoad run_load(const GroupState& state, std::uint32_t device) const;
  void change_load(std::uint32_t device, const DeviceLoad& load, int sign);
  const LaneTable& table(GroupState& state, const Collective& collective);

  const Cluster& cluster_;
  const Topology& topology_;
  FlowNetwork& network_;
  Paths paths_;
  std::vector<std::unique_ptr<GroupState>> groups_;
  std::vector<Collective> collectives_;
  EventQueue timers_;  // ranks that begin: id is the group, data the rank
  std::vector<CollectiveReport> reports_;
  std::vector<std::vector<LinkId>> device_links_;  // per device: those that begin or end there
  std::vector<DeviceLoad> loads_;                  // per device
  std::vector<char> is_changed_;
  std::vector<std::uint32_t> changed_;
};

}  // namespace overtake
