#include "sim/network.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {
namespace {

// Beyond this many nanoseconds (a century) a flow is as good as stopped.
constexpr double kStopped = 3e18;

}  // namespace

FlowNetwork::FlowNetwork(const std::vector<DirectedLink>& links) {
  links_.resize(links.size());
  rests_.resize(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    links_[i].capacity = static_cast<double>(links[i].bandwidth) / 1e9;
    latencies_ns_.push_back(links[i].latency_ns);
  }
}

PathId FlowNetwork::add_path(std::vector<LinkId> links, std::int64_t latency_ns) {
  paths_.push_back(
      {static_cast<std::uint32_t>(path_links_.size()), static_cast<std::uint32_t>(links.size()), latency_ns});
  path_links_.insert(path_links_.end(), links.begin(), links.end());
  if (free_places_.size() <= links.size()) free_places_.resize(links.size() + 1);
  return static_cast<PathId>(paths_.size() - 1);
}

PathId FlowNetwork::add_path(std::vector<LinkId> links) {
  std::int64_t latency = 0;
  for (const LinkId l : links) latency += latencies_ns_[l];
  return add_path(std::move(links), latency);
}

std::span<const LinkId> FlowNetwork::path_links(PathId path) const {
  return std::span(path_links_).subspan(paths_[path].first, paths_[path].count);
}

double FlowNetwork::path_bandwidth(PathId path) const {
  double narrowest = 1e18;
  for (const LinkId l : path_links(path)) narrowest = std::min(narrowest, links_[l].capacity);
  return narrowest * 1e9;
}

std::uint32_t FlowNetwork::take_places(std::uint32_t count) {
  std::vector<std::uint32_t>& free = free_places_[count];
  if (free.empty()) {
    places_.resize(places_.size() + count);
    return static_cast<std::uint32_t>(places_.size() - count);
  }
  const std::uint32_t places = free.back();
  free.pop_back();
  return places;
}

double FlowNetwork::limit_of(const Flow& flow) const {
  double limit = flow.own_limit;
  for (const LinkId l : path_links(flow.path)) limit = std::min(limit, links_[l].capacity);
  return limit;
}

FlowId FlowNetwork::start(std::int64_t now, PathId path, std::int64_t bytes, const FlowOptions& options) {
  move_to(now);
  ++events_;
  FlowId id;
  if (free_flows_.empty()) {
    id = static_cast<FlowId>(flows_.size());
    flows_.emplace_back();
    new_rates_.push_back(0);
  } else {
    id = free_flows_.back();
    free_flows_.pop_back();
  }
  Flow& flow = flows_[id];
  flow.remaining = static_cast<double>(bytes);
  flow.rate = 0;
  flow.own_limit = options.bytes_per_ns;
  flow.updated_ns = now;
  flow.latency_ns = paths_[path].latency_ns + options.extra_latency_ns;
  flow.tag = options.tag;
  flow.path = path;
  flow.priority = options.priority;
  flow.is_sending = true;
  flow.limit = flow.own_limit;
  for (const LinkId l : path_links(path)) {
    flow.limit = std::min(flow.limit, links_[l].capacity);
    links_[l].bytes += bytes;
  }
  join_links(id);
  return id;
}

// A flow that meets only links with room for all gets its limit at once; the others wait for settle().
void FlowNetwork::join_links(FlowId id) {
  Flow& flow = flows_[id];
  const std::span<const LinkId> links = path_links(flow.path);
  flow.places = take_places(static_cast<std::uint32_t>(links.size()));
  bool is_alone = true;
  for (std::uint32_t hop = 0; hop < links.size(); ++hop) {
    Link& link = links_[links[hop]];
    places_[flow.places + hop] = static_cast<std::uint32_t>(link.flows.size());
    link.flows.push_back({id, hop});
    link.demand += flow.limit;
    if (link.is_tight()) {
      make_dirty(links[hop]);
      is_alone = false;
    }
  }
  if (is_alone) set_rate(id, flow.limit);
}

void FlowNetwork::leave_links(FlowId id) {
  Flow& flow = flows_[id];
  const std::span<const LinkId> links = path_links(flow.path);
  for (std::uint32_t hop = 0; hop < links.size(); ++hop) {
    Link& link = links_[links[hop]];
    if (link.flows.size() == 1) {
      link.flows.clear();
      link.demand = 0;
      continue;
    }
    if (link.is_tight()) make_dirty(links[hop]);
    const std::uint32_t place = places_[flow.places + hop];
    const Use last = link.flows.back();
    link.flows[place] = last;
    places_[flows_[last.flow].places + last.hop] = place;
    link.flows.pop_back();
    link.demand -= flow.limit;
  }
  free_places_[links.size()].push_back(flow.places);
}

void FlowNetwork::make_dirty(LinkId link) {
  if (links_[link].is_dirty) return;
  links_[link].is_dirty = true;
  dirty_.push_back(link);
}

// From now_ on. An event that is now too early stays and is put off when it comes; one that is too late is left behind.
void FlowNetwork::set_rate(FlowId id, double rate) {
  Flow& flow = flows_[id];
  flow.remaining = std::max(0.0, flow.remaining - flow.rate * static_cast<double>(now_ - flow.updated_ns));
  flow.updated_ns = now_;
  flow.rate = rate;
  const double left = flow.remaining > 0 ? flow.remaining / rate : 0;
  const bool moves = left < kStopped;
  flow.end_ns = moves ? now_ + static_cast<std::int64_t>(left + 0.5) : kNever;
  if (moves && flow.is_due && flow.due_ns <= flow.end_ns) return;
  ++flow.stamp;
  set_due(flow, moves);
  if (moves) push_end(id);
}

void FlowNetwork::set_bandwidth(std::int64_t now, LinkId link, double bytes_per_s) {
  move_to(now);
  links_[link].capacity = bytes_per_s / 1e9;
  make_dirty(link);
  for (const Use& use : links_[link].flows) {
    Flow& flow = flows_[use.flow];
    const double before = flow.limit;
    flow.limit = limit_of(flow);
    for (const LinkId l : path_links(flow.path)) {
      links_[l].demand += flow.limit - before;
      make_dirty(l);
    }
  }
}

void FlowNetwork::move_to(std::int64_t now) {
  if (now == now_) return;
  OVERTAKE_CHECK(now > now_, "time goes back in the network: {} after {}", now, now_);
  if (!dirty_.empty()) settle();
  now_ = now;
}

std::int64_t FlowNetwork::next_time() {
  if (!dirty_.empty()) settle();
  return due_ == 0 ? kNever : queue_.top().time_ns;
}

std::span<const FlowReport> FlowNetwork::advance(std::int64_t now) {
  move_to(now);
  reports_.clear();
  while (!queue_.empty() && queue_.top().time_ns <= now) {
    const Event event = queue_.top();
    queue_.pop();
    const Flow& flow = flows_[event.id / 2];
    if (flow.stamp != event.data) continue;
    if (flow.is_sending && flow.end_ns > event.time_ns) {
      push_end(event.id / 2);
    } else if (flow.is_sending) {
      finish_sending(event);
    } else {
      finish(event.id / 2, FlowProgress::arrived);
    }
  }
  return reports_;
}

void FlowNetwork::finish_sending(const Event& event) {
  const FlowId id = event.id / 2;
  Flow& flow = flows_[id];
  leave_links(id);
  flow.is_sending = false;
  flow.rate = 0;
  if (flow.latency_ns == 0) return finish(id, FlowProgress::both);
  reports_.push_back({flow.tag, id, FlowProgress::sent});
  queue_.push({event.time_ns + flow.latency_ns, id * 2 + 1, flow.stamp});
}

void FlowNetwork::finish(FlowId id, FlowProgress progress) {
  Flow& flow = flows_[id];
  ++events_;
  ++flow.stamp;
  set_due(flow, false);
  reports_.push_back({flow.tag, id, progress});
  free_flows_.push_back(id);
}

void FlowNetwork::push_end(FlowId id) {
  Flow& flow = flows_[id];
  flow.due_ns = flow.end_ns;
  queue_.push({flow.end_ns, id * 2, flow.stamp});
}

void FlowNetwork::set_due(Flow& flow, bool is_due) {
  due_ += static_cast<std::size_t>(is_due) - static_cast<std::size_t>(flow.is_due);
  flow.is_due = is_due;
}

double FlowNetwork::flow_rate(FlowId flow) {
  if (!dirty_.empty()) settle();
  return flows_[flow].rate * 1e9;
}

double FlowNetwork::link_rate(LinkId link) {
  if (!dirty_.empty()) settle();
  double sum = 0;
  for (const Use& use : links_[link].flows) sum += flows_[use.flow].rate;
  return sum * 1e9;
}

}  // namespace overtake
