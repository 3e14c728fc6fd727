#include "sim/collective.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace overtake {
namespace {

// What streams through a tree or a chain goes in pieces of this size, or larger ones when that makes too many.
constexpr std::int64_t kPieceBytes = 32 << 10;
constexpr std::int64_t kMostPieces = 256;

}  // namespace

Collectives::Collectives(const Cluster& cluster, const Topology& topology, FlowNetwork& network)
    : cluster_(cluster),
      topology_(topology),
      network_(network),
      paths_(topology, network),
      device_links_(topology.device_count),
      loads_(topology.device_count),
      is_changed_(topology.device_count, 0) {
  for (LinkId l = 0; l < topology.links.size(); ++l)
    for (const std::uint32_t end : {topology.links[l].from, topology.links[l].to})
      if (topology.is_device(end)) device_links_[end].push_back(l);
}

GroupId Collectives::add_group(std::vector<std::uint32_t> devices) {
  groups_.push_back(std::make_unique<GroupState>());
  groups_.back()->group = make_group(cluster_, paths_, std::move(devices));
  return static_cast<GroupId>(groups_.size() - 1);
}

GroupId Collectives::add_folded_group(const FoldedMembers& members) {
  std::vector<std::uint32_t> devices = members.devices;
  std::ranges::sort(devices);
  const GroupId id = add_group(std::move(devices));
  groups_[id]->folded = std::make_unique<FoldedGroup>(groups_[id]->group, paths_, members);
  return id;
}

CollectiveId Collectives::add(const CollectiveSpec& spec) {
  const DeviceGroup& group = groups_[spec.group]->group;
  const std::int64_t chunk = spec.chunk_bytes > 0 ? std::min(spec.chunk_bytes, spec.bytes) : spec.bytes;
  Collective collective{.spec = spec, .choice = {}, .bytes_left = spec.bytes, .is_ready = {}};
  collective.choice = choose(group, spec.operation, chunk, spec.algorithm, spec.protocol);
  collective.is_ready.assign(groups_[spec.group]->ranks(), 0);
  collectives_.push_back(std::move(collective));
  return static_cast<CollectiveId>(collectives_.size() - 1);
}

void Collectives::ready(std::int64_t now, CollectiveId id, std::uint32_t rank) {
  Collective& collective = collectives_[id];
  OVERTAKE_CHECK(rank < collective.is_ready.size() && !collective.is_ready[rank],
                 "rank {} of collective {} is ready twice, or there is none such", rank, id);
  collective.is_ready[rank] = 1;
  GroupState& state = *groups_[collective.spec.group];
  if (state.run.collective == id) {
    timers_.push({now + state.run.base_ns, collective.spec.group, rank});
    return;
  }
  if (collective.ready_count++ == 0) state.waiting.insert({-int{collective.spec.priority}, id});
  if (state.run.collective == kNone) begin_chunk(now, state, collective.spec.group);
}

void Collectives::ready_all(std::int64_t now, CollectiveId id) {
  const std::uint32_t ranks = groups_[collectives_[id].spec.group]->ranks();
  for (std::uint32_t r = 0; r < ranks; ++r) ready(now, id, r);
}

const LaneTable& Collectives::table(GroupState& state, const Collective& collective) {
  if (state.folded) return state.folded->table();
  const CollectiveSpec& spec = collective.spec;
  const std::uint32_t root = spec.operation == Operation::broadcast ? spec.root : 0;
  const auto [entry, is_new] = state.tables.try_emplace({spec.operation, collective.choice.algorithm, root});
  if (is_new) entry->second = make_lanes(state.group, paths_, spec.operation, collective.choice.algorithm, root);
  return entry->second;
}

void Collectives::begin_chunk(std::int64_t now, GroupState& state, GroupId id) {
  if (state.waiting.empty()) return;
  Run& run = state.run;
  run.collective = state.waiting.begin()->second;
  state.waiting.erase(state.waiting.begin());
  const Collective& collective = collectives_[run.collective];
  const CollectiveSpec& spec = collective.spec;
  const auto [algorithm, protocol, predicted] = collective.choice;
  run.table = &table(state, collective);
  run.chunk_bytes = spec.chunk_bytes > 0 ? std::min(spec.chunk_bytes, collective.bytes_left) : collective.bytes_left;
  run.base_ns = base_ns(state.group, algorithm, protocol);
  run.priority = spec.priority;
  run.waits_for_all = spec.is_fluid || state.folded;
  run.lanes.resize(run.table->lanes.size());
  std::uint32_t switch_lanes = 0;
  for (std::uint32_t l = 0; l < run.lanes.size(); ++l) {
    fill_lane(state, collective, l);
    switch_lanes += run.table->lanes[l].from == kNone && run.table->lanes[l].to == kNone;
  }
  const std::uint32_t ranks = state.ranks();
  run.work = run.table->work;
  for (std::uint32_t& work : run.work) work += 1 + switch_lanes;
  run.is_started.assign(ranks, 0);
  run.started_ranks = 0;
  run.open_ranks = ranks;
  const std::int64_t chunk_ns = predict_ns(state.group, spec.operation, algorithm, protocol, run.chunk_bytes);
  const double wire = wire_bytes(state.group, spec.operation, algorithm, run.chunk_bytes);
  run.wire_bytes_per_s = chunk_ns > 0 ? wire / static_cast<double>(chunk_ns) * 1e9 : 0;
  for (std::uint32_t r = 0; r < ranks; ++r)
    if (collective.is_ready[r]) timers_.push({now + run.base_ns, id, r});
}

void Collectives::fill_lane(const GroupState& state, const Collective& collective, std::uint32_t index) {
  const SendLane& lane = state.run.table->lanes[index];
  LaneState& out = groups_[collective.spec.group]->run.lanes[index];
  if (state.folded) {
    const FoldedGroup::Flow flow =
        state.folded->flow(index, collective.spec.operation, collective.choice, state.run.chunk_bytes);
    out = {.steps = 1, .bytes = flow.bytes, .extra_ns = flow.extra_ns, .limit = flow.bytes_per_ns};
    return;
  }
  const auto [algorithm, protocol, predicted] = collective.choice;
  const std::int64_t bytes = state.run.chunk_bytes;
  const std::int64_t shard = bytes / lane.shards + (lane.shard < bytes % lane.shards);
  const std::int64_t streamed = std::clamp<std::int64_t>((shard + kPieceBytes - 1) / kPieceBytes, 1, kMostPieces);
  const std::int64_t pieces = lane.pieces > 0 ? lane.pieces : streamed;
  out = {};
  out.steps = lane.steps > 0 ? lane.steps : static_cast<std::uint32_t>(streamed);
  out.bytes = shard / pieces;
  out.larger = static_cast<std::uint32_t>(shard % pieces);
  if (lane.again > 0) {
    out.bytes += (out.bytes + lane.again / 2) / lane.again;
    out.larger = 0;
  }
  if (lane.from == kNone) {
    const Reducer& reducer = state.group.reducer ? *state.group.reducer : state.group.rail_reducers[lane.reducer];
    out.limit = reduction_limit(reducer, static_cast<double>(out.bytes), static_cast<double>(shard));
    return;
  }
  const LinkKind kind = paths_.kind(lane.path);
  const Hop hop{kind, network_.path_latency_ns(lane.path), 0};
  const std::int64_t hop_time = hop_ns(hop, algorithm, protocol);
  out.extra_ns = hop_time - hop.latency_ns;
  if (collective.spec.is_fluid && lane.pieces > 0 && out.steps > 1) {
    // The hops of a ring through all nodes are of several kinds; those of others are alike.
    const std::int64_t latency = algorithm == Algorithm::ring
                                     ? ring_latency_ns(state.group, collective.spec.operation, protocol, bytes)
                                     : hop_time * out.steps;
    out.extra_ns = std::max<std::int64_t>(0, latency - hop.latency_ns);
    out.bytes = shard * out.steps / pieces;
    out.larger = 0;
    out.steps = 1;
  }
  // Flags beside the data: more bytes on the wire.
  if (const double payload = efficiency(kind, algorithm, protocol); payload < 1) {
    out.bytes = std::llround(static_cast<double>(out.bytes) / payload);
    out.larger = 0;
  }
}

void Collectives::begin_rank(std::int64_t now, GroupId id, std::uint32_t rank) {
  GroupState& state = *groups_[id];
  Run& run = state.run;
  run.is_started[rank] = 1;
  ++run.started_ranks;
  const std::uint32_t device = state.devices()[rank];
  change_load(device, run_load(state, device), 1);
  for (const std::uint32_t lane : run.table->lanes_of(rank)) try_send(now, id, lane);
  if (run.started_ranks == state.ranks())
    for (std::uint32_t l = 0; l < run.lanes.size(); ++l)
      if (run.waits_for_all || run.table->lanes[l].from == kNone) try_send(now, id, l);
  work_done(now, id, rank);
}

void Collectives::try_send(std::int64_t now, GroupId id, std::uint32_t index) {
  Run& run = groups_[id]->run;
  LaneState& lane = run.lanes[index];
  const SendLane& plan = run.table->lanes[index];
  if (lane.is_sending || lane.started == lane.steps) return;
  const bool waits_for_all = plan.from == kNone || run.waits_for_all;
  if (waits_for_all ? run.started_ranks < run.is_started.size() : !run.is_started[plan.from]) return;
  for (const Need& need : run.table->needs_of(plan)) {
    const LaneState& other = run.lanes[need.lane];
    const std::uint32_t pieces = need.lag == kWhole ? other.steps : std::min(other.steps, lane.started + need.lag);
    if (other.arrived < pieces) return;
  }
  std::int64_t bytes = lane.bytes;
  if (lane.larger > 0) {
    const std::uint32_t pieces = plan.pieces > 0 ? plan.pieces : lane.steps;
    bytes += (plan.place + 2 * pieces - lane.started) % pieces < lane.larger;
  }
  lane.is_sending = true;
  ++lane.started;
  network_.start(now, plan.path, bytes,
                 {.tag = std::uint64_t{id} << 32 | index,
                  .bytes_per_ns = lane.limit,
                  .extra_latency_ns = lane.extra_ns,
                  .priority = run.priority});
}

void Collectives::note(std::int64_t now, const FlowReport& report) {
  const auto id = static_cast<GroupId>(report.tag >> 32);
  const auto index = static_cast<std::uint32_t>(report.tag);
  Run& run = groups_[id]->run;
  LaneState& lane = run.lanes[index];
  const SendLane& plan = run.table->lanes[index];
  if (report.progress != FlowProgress::arrived) {
    lane.is_sending = false;
    if (lane.started < lane.steps) {
      try_send(now, id, index);
    } else if (plan.from != kNone) {
      work_done(now, id, plan.from);
    }
  }
  if (report.progress == FlowProgress::sent) return;
  const bool is_whole = ++lane.arrived == lane.steps;
  for (const std::uint32_t waiting : run.table->wakes_of(plan)) try_send(now, id, waiting);
  if (!is_whole) return;
  if (plan.to != kNone) return work_done(now, id, plan.to);
  if (plan.from != kNone) return;  // it went to a device that is not simulated
  for (std::uint32_t r = 0; r < run.is_started.size(); ++r) work_done(now, id, r);
}

void Collectives::work_done(std::int64_t now, GroupId id, std::uint32_t rank) {
  GroupState& state = *groups_[id];
  Run& run = state.run;
  if (--run.work[rank] > 0) return;
  const std::uint32_t device = state.devices()[rank];
  change_load(device, run_load(state, device), -1);
  --run.open_ranks;
  if (collectives_[run.collective].bytes_left == run.chunk_bytes)
    reports_.push_back({run.collective, rank, run.open_ranks == 0});
  if (run.open_ranks == 0) end_chunk(now, id);
}

void Collectives::end_chunk(std::int64_t now, GroupId id) {
  GroupState& state = *groups_[id];
  Collective& collective = collectives_[state.run.collective];
  collective.bytes_left -= state.run.chunk_bytes;
  if (collective.bytes_left > 0) {
    state.waiting.insert({-int{collective.spec.priority}, state.run.collective});
  } else {
    collective.is_ready = {};
  }
  state.run.collective = kNone;
  begin_chunk(now, state, id);
}

// The factors are the device's own.
DeviceLoad Collectives::run_load(const GroupState& state, std::uint32_t device) const {
  const Collective& collective = collectives_[state.run.collective];
  const CommunicationCost& cost = cluster_.devices[topology_.vertices[device].type].communication;
  const bool in_network = collective.choice.algorithm == Algorithm::in_network;
  const bool is_copy = collective.spec.operation == Operation::send_recv;
  const double factor = is_copy ? 1 : in_network ? cost.in_network_memory_factor : cost.memory_factor;
  return {in_network ? cost.in_network_sms : cost.sms, state.run.wire_bytes_per_s * factor};
}

void Collectives::change_load(std::uint32_t device, const DeviceLoad& load, int sign) {
  loads_[device].sms += sign * load.sms;
  loads_[device].memory_bytes_per_s += sign * load.memory_bytes_per_s;
  if (loads_[device].sms == 0) loads_[device].memory_bytes_per_s = 0;  // no rounding stays
  if (is_changed_[device]) return;
  is_changed_[device] = 1;
  changed_.push_back(device);
}

std::vector<std::uint32_t> Collectives::take_changed() {
  for (const std::uint32_t device : changed_) is_changed_[device] = 0;
  return std::exchange(changed_, {});
}

void Collectives::set_speed(std::int64_t now, std::uint32_t device, double share) {
  for (const LinkId l : device_links_[device])
    network_.set_bandwidth(now, l, static_cast<double>(topology_.links[l].bandwidth) * share);
}

std::int64_t Collectives::next_time() {
  return std::min(timers_.empty() ? kNever : timers_.top().time_ns, network_.next_time());
}

std::span<const CollectiveReport> Collectives::advance(std::int64_t now) {
  reports_.clear();
  for (std::int64_t time = next_time(); time <= now; time = next_time()) {
    while (!timers_.empty() && timers_.top().time_ns <= time) {
      const Event event = timers_.top();
      timers_.pop();
      begin_rank(time, event.id, event.data);
    }
    for (const FlowReport& report : network_.advance(time)) note(time, report);
  }
  return reports_;
}

}  // namespace overtake
