#include "sim/collective.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "sim/nccl_tuning.h"

namespace overtake {
namespace {

// What streams through a tree or a chain goes in pieces of this size, or larger ones when that makes too many.
constexpr std::int64_t kPieceBytes = 32 << 10;
constexpr std::int64_t kMostPieces = 256;
constexpr std::int64_t kMostFluidPieces = 32;
// So many pieces of a lane for each chunk at least, so that it can end near a border.
constexpr std::int64_t kPiecesOfChunk = 4;

// How many chunks so many bytes are.
std::int64_t chunks_of(const CollectiveSpec& spec, std::int64_t bytes) {
  return spec.chunk_bytes > 0 ? std::max<std::int64_t>(1, (bytes + spec.chunk_bytes - 1) / spec.chunk_bytes) : 1;
}

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
  DeviceGroup& group = groups_[spec.group]->group;
  if (spec.operation == Operation::all_to_all && group.size() <= kMostPeers) measure_exchange(paths_, group);
  Collective collective{.spec = spec, .choice = {}, .bytes_left = spec.bytes, .is_ready = {}};
  collective.choice = choose(group, spec.operation, spec.bytes, spec.algorithm, spec.protocol);
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
  if (collective.ready_count++ > 0) return;
  state.waiting.insert(place_of(id));
  if (state.run.collective == kNone) return begin_run(now, state, collective.spec.group);
  if (place_of(id) < place_of(state.run.collective)) cut_at_border(state);
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

void Collectives::begin_run(std::int64_t now, GroupState& state, GroupId id) {
  if (state.waiting.empty()) return;
  Run& run = state.run;
  run.collective = state.waiting.begin()->second;
  state.waiting.erase(state.waiting.begin());
  const Collective& collective = collectives_[run.collective];
  const CollectiveSpec& spec = collective.spec;
  const auto [algorithm, protocol, predicted] = collective.choice;
  run.table = &table(state, collective);
  run.bytes = collective.bytes_left;
  run.is_cut = false;
  run.base_ns = base_ns(state.group, spec.operation, algorithm, protocol, run.bytes);
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
  const std::int64_t run_ns = predict_ns(state.group, spec.operation, algorithm, protocol, run.bytes);
  const double wire = wire_bytes(state.group, spec.operation, algorithm, run.bytes);
  run.wire_bytes_per_s = run_ns > 0 ? wire / static_cast<double>(run_ns) * 1e9 : 0;
  for (std::uint32_t r = 0; r < ranks; ++r)
    if (collective.is_ready[r]) timers_.push({now + run.base_ns, id, r});
}

void Collectives::fill_lane(const GroupState& state, const Collective& collective, std::uint32_t index) {
  const SendLane& lane = state.run.table->lanes[index];
  LaneState& out = groups_[collective.spec.group]->run.lanes[index];
  if (state.folded) {
    const FoldedGroup::Flow flow =
        state.folded->flow(index, collective.spec.operation, collective.choice, state.run.bytes);
    const std::int64_t chunks = std::min(chunks_of(collective.spec, state.run.bytes), kMostFluidPieces);
    out = {};
    out.steps = static_cast<std::uint32_t>(chunks);
    out.bytes = flow.bytes / chunks;
    out.larger = static_cast<std::uint32_t>(flow.bytes % chunks);
    out.extra_ns = flow.extra_ns;
    out.limit = flow.bytes_per_ns;
    out.is_fluid = true;
    if (flow.payload < 1) {
      out.bytes = std::llround(static_cast<double>(out.bytes) / flow.payload);
      out.larger = 0;
    }
    return;
  }
  const auto [algorithm, protocol, predicted] = collective.choice;
  const DeviceGroup& group = state.group;
  const std::int64_t bytes = state.run.bytes;
  const std::int64_t shard = bytes / lane.shards + (lane.shard < bytes % lane.shards);
  const std::int64_t streamed = std::clamp<std::int64_t>((shard + kPieceBytes - 1) / kPieceBytes, 1, kMostPieces);
  const std::int64_t pieces = lane.pieces > 0 ? lane.pieces : streamed;
  const std::int64_t chunks =
      std::min(chunks_of(collective.spec, bytes), collective.spec.is_fluid ? kMostFluidPieces : kMostPieces);
  out = {};
  out.steps = lane.steps > 0 ? lane.steps : static_cast<std::uint32_t>(streamed);
  out.bytes = shard / pieces;
  out.larger = static_cast<std::uint32_t>(shard % pieces);
  if (lane.again > 0) {
    out.bytes += (out.bytes + lane.again / 2) / lane.again;
    out.larger = 0;
  }
  if (algorithm == Algorithm::nvls_tree && lane.from == kNone) {
    const Reducer& reducer = group.node_reducers[lane.reducer];
    const double lost = reducer.bytes_per_ns / switch_bytes_per_ns(reducer);
    out.is_fluid = collective.spec.is_fluid;
    if (out.is_fluid) out.steps = static_cast<std::uint32_t>(chunks);
    out.bytes = std::llround(static_cast<double>(shard) * lost / out.steps);
    out.larger = 0;
    return;
  }
  if (lane.from == kNone) {
    const Reducer& reducer = state.group.reducer ? *state.group.reducer : state.group.rail_reducers[lane.reducer];
    out.limit = reduction_limit(reducer, static_cast<double>(out.bytes), static_cast<double>(shard));
    out.steps = static_cast<std::uint32_t>(chunks);
    out.larger = static_cast<std::uint32_t>(out.bytes % chunks);
    out.bytes /= chunks;
    out.is_fluid = true;
    return;
  }
  const LinkKind kind = paths_.kind(lane.path);
  const Hop hop{kind, network_.path_latency_ns(lane.path), 0};
  const std::int64_t hop_time = hop_ns(hop, algorithm, protocol);
  out.extra_ns = hop_time - hop.latency_ns;
  if (collective.spec.operation == Operation::send_recv)
    out.limit = message_limit(group, protocol, bytes, collective.spec.communicator);
  if (collective.spec.is_fluid && lane.pieces > 0 && out.steps > 1) {
    // The hops of a ring through all nodes are of several kinds; those of others are alike.
    const std::int64_t latency = algorithm == Algorithm::ring
                                     ? ring_latency_ns(state.group, collective.spec.operation, protocol, bytes)
                                     : hop_time * out.steps;
    out.extra_ns = std::max<std::int64_t>(0, latency - hop.latency_ns);
    // One flow, or one for each chunk, their latencies beside each other.
    const std::int64_t all = shard * out.steps / pieces;
    out.steps = static_cast<std::uint32_t>(chunks);
    out.bytes = all / chunks;
    out.larger = static_cast<std::uint32_t>(all % chunks);
    out.is_fluid = true;
  } else if (collective.spec.is_fluid && lane.pieces == 0) {
    // What streams through a tree or a chain: as much of the way as there is comes behind every flow.
    const Operation operation = collective.spec.operation;
    const std::int64_t latency =
        predict_ns(group, operation, algorithm, protocol, 0) - base_ns(group, operation, algorithm, protocol, 0);
    out.extra_ns = std::max<std::int64_t>(0, latency - hop.latency_ns);
    out.steps = static_cast<std::uint32_t>(chunks);
    out.bytes = shard / chunks;
    out.larger = static_cast<std::uint32_t>(shard % chunks);
    out.is_fluid = true;
  } else if (lane.pieces > 0 && out.steps > 1 && chunks > 1) {
    out.parts = static_cast<std::uint32_t>((kPiecesOfChunk * chunks + out.steps - 1) / out.steps);
    out.steps *= out.parts;
  }
  // Flags beside the data: more bytes on the wire.
  if (const double payload = nccl::payload_share(group, kind, algorithm, protocol, bytes); payload < 1) {
    out.bytes = std::llround(static_cast<double>(out.bytes) / payload);
    out.limit /= payload;
    out.larger = 0;
  }
}

// Of the piece that starts next.
std::int64_t Collectives::piece_bytes(const Run& run, std::uint32_t index) const {
  const LaneState& lane = run.lanes[index];
  if (run.is_cut) return lane.bytes;
  const SendLane& plan = run.table->lanes[index];
  const std::uint32_t step = lane.started / lane.parts, part = lane.started % lane.parts;
  std::int64_t bytes = lane.bytes;
  if (lane.larger > 0) {
    const std::uint32_t pieces = plan.pieces > 0 && !lane.is_fluid ? plan.pieces : lane.steps / lane.parts;
    bytes += (plan.place + 2 * pieces - step) % pieces < lane.larger;
  }
  return bytes / lane.parts + (part < bytes % lane.parts);
}

// Less of the running collective is left than was planned: its pieces that have not started become smaller, so that it
// ends at the next border. Where a rank has all already, it goes on to its end.
void Collectives::cut_at_border(GroupState& state) {
  Run& run = state.run;
  const CollectiveSpec& spec = collectives_[run.collective].spec;
  const std::int64_t chunks = chunks_of(spec, run.bytes);
  if (run.is_cut || chunks < 2 || run.open_ranks < state.ranks()) return;
  const auto planned = [](const LaneState& lane) { return static_cast<double>(lane.steps / lane.parts * lane.bytes); };
  double sent = 0, all = 0;
  for (const LaneState& lane : run.lanes) {
    sent += static_cast<double>(lane.sent);
    all += planned(lane);
  }
  const double part = all > 0 ? sent / all : 1;
  const auto border = static_cast<std::int64_t>(std::ceil(std::min(1.0, part) * static_cast<double>(chunks)));
  const std::int64_t bytes = std::min(run.bytes, std::max<std::int64_t>(1, border) * spec.chunk_bytes);
  if (bytes == run.bytes) return;
  for (LaneState& lane : run.lanes) {
    if (lane.started == lane.steps) continue;
    const double share = static_cast<double>(bytes) / static_cast<double>(run.bytes);
    const double left = std::max(0.0, planned(lane) * share - static_cast<double>(lane.sent));
    lane.bytes = static_cast<std::int64_t>(std::ceil(left / (lane.steps - lane.started)));
  }
  run.bytes = bytes;
  run.is_cut = true;
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
    if (lane.is_fluid && need.lag != kWhole) continue;
    const std::uint32_t before = lane.started / lane.parts * lane.parts;
    const std::uint32_t pieces = need.lag == kWhole ? other.steps : std::min(other.steps, before + need.lag);
    if (other.arrived < pieces) return;
  }
  const std::int64_t bytes = piece_bytes(run, index);
  lane.sent += bytes;
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
  if (collectives_[run.collective].bytes_left == run.bytes)
    reports_.push_back({run.collective, rank, run.open_ranks == 0});
  if (run.open_ranks == 0) end_run(now, id);
}

void Collectives::end_run(std::int64_t now, GroupId id) {
  GroupState& state = *groups_[id];
  Collective& collective = collectives_[state.run.collective];
  collective.bytes_left -= state.run.bytes;
  if (collective.bytes_left > 0) {
    state.waiting.insert(place_of(state.run.collective));
  } else {
    collective.is_ready = {};
  }
  state.run.collective = kNone;
  begin_run(now, state, id);
}

// The factors are the device's own.
DeviceLoad Collectives::run_load(const GroupState& state, std::uint32_t device) const {
  const Collective& collective = collectives_[state.run.collective];
  const CommunicationCost& cost = cluster_.devices[topology_.vertices[device].type].communication;
  const Algorithm algorithm = collective.choice.algorithm;
  const bool in_network = algorithm == Algorithm::in_network || algorithm == Algorithm::nvls_tree;
  const Operation operation = collective.spec.operation;
  // What is sent is read; in an all-to-all as much comes in and is written.
  const double copied = operation == Operation::send_recv ? 1 : operation == Operation::all_to_all ? 2 : 0;
  const double factor = copied > 0 ? copied : in_network ? cost.in_network_memory_factor : cost.memory_factor;
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
