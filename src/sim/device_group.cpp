#include "sim/device_group.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "sim/torus_ways.h"

namespace overtake {

PathId Paths::between(std::uint32_t from, std::uint32_t to) {
  const auto [entry, is_new] = known_.try_emplace({from, to}, 0);
  if (is_new) entry->second = network_.add_path(router_.route(from, to));
  return entry->second;
}

LinkKind Paths::kind(PathId path) const {
  LinkKind last = LinkKind::ici;
  for (const LinkId l : network_.path_links(path)) last = std::max(last, topology_.links[l].kind);
  return last;
}

bool DeviceGroup::is_even() const {
  return std::all_of(nodes.begin(), nodes.end(), [&](const auto& ranks) { return ranks.size() == nodes[0].size(); });
}

namespace {

constexpr std::size_t kMostRanksToOrder = 8;  // 5040 orders

// Rings inside a node whose devices are joined by cables of unequal width: again and again the widest ring in what is
// left, in both directions.
class RingSearch {
 public:
  RingSearch(Paths& paths, const DeviceGroup& group, const std::vector<std::uint32_t>& ranks)
      : paths_(paths), group_(group), ranks_(ranks), left_(paths.topology().links.size()) {
    for (std::size_t l = 0; l < left_.size(); ++l) left_[l] = paths.topology().links[l].bandwidth;
  }

  std::vector<std::vector<std::uint32_t>> search() {
    std::vector<std::pair<std::int64_t, std::vector<std::uint32_t>>> found;
    while (widest() > 0) {
      found.emplace_back(best_width_, best_);
      take(best_, best_width_);
      const std::vector<std::uint32_t> back(best_.rbegin(), best_.rend());
      if (width(back) < best_width_) continue;
      found.emplace_back(best_width_, back);
      take(back, best_width_);
    }
    // Rings far narrower than the first are left out; wide ones count as several of the narrowest.
    while (found.back().first * 4 < found.front().first) found.pop_back();
    std::vector<std::vector<std::uint32_t>> rings;
    for (const auto& [width, order] : found)
      for (std::int64_t w = width; w >= found.back().first; w -= found.back().first) rings.push_back(order);
    return rings;
  }

 private:
  std::int64_t hop(std::uint32_t a, std::uint32_t b) {
    std::int64_t least = INT64_MAX;
    const PathId path = paths_.between(group_.devices[a], group_.devices[b]);
    for (const LinkId l : paths_.network().path_links(path)) least = std::min(least, left_[l]);
    return least;
  }
  std::int64_t width(const std::vector<std::uint32_t>& order) {
    std::int64_t least = INT64_MAX;
    for (std::size_t i = 0; i < order.size(); ++i)
      least = std::min(least, hop(order[i], order[(i + 1) % order.size()]));
    return least;
  }
  void take(const std::vector<std::uint32_t>& order, std::int64_t amount) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const PathId path = paths_.between(group_.devices[order[i]], group_.devices[order[(i + 1) % order.size()]]);
      for (const LinkId l : paths_.network().path_links(path)) left_[l] -= amount;
    }
  }
  std::int64_t widest() {
    best_width_ = 0;
    order_ = {ranks_[0]};
    extend(INT64_MAX);
    return best_width_;
  }
  // The first of the widest orders, ranks tried as they come.
  void extend(std::int64_t so_far) {
    if (so_far <= best_width_) return;
    if (order_.size() == ranks_.size()) {
      const std::int64_t closed = std::min(so_far, hop(order_.back(), order_.front()));
      if (closed <= best_width_) return;
      best_width_ = closed;
      best_ = order_;
      return;
    }
    for (const std::uint32_t r : ranks_) {
      if (std::find(order_.begin(), order_.end(), r) != order_.end()) continue;
      const std::int64_t next = std::min(so_far, hop(order_.back(), r));
      order_.push_back(r);
      extend(next);
      order_.pop_back();
    }
  }

  Paths& paths_;
  const DeviceGroup& group_;
  const std::vector<std::uint32_t>& ranks_;
  std::vector<std::int64_t> left_;  // per link
  std::vector<std::uint32_t> order_, best_;
  std::int64_t best_width_ = 0;
};

// Whether any pair in the node has a cable of its own.
bool has_cables(Paths& paths, const DeviceGroup& group, const std::vector<std::uint32_t>& ranks) {
  for (std::size_t i = 1; i < ranks.size(); ++i)
    if (paths.network().path_links(paths.between(group.devices[ranks[0]], group.devices[ranks[i]])).size() == 1)
      return true;
  return false;
}

// Each place in the nodes reaches the same place of the next node by links that no other place uses.
bool find_rails(Paths& paths, const DeviceGroup& group) {
  if (group.nodes.size() < 2 || group.nodes[0].size() < 2 || !group.is_even()) return false;
  std::set<LinkId> used;
  for (std::size_t place = 0; place < group.nodes[0].size(); ++place) {
    const PathId path = paths.between(group.devices[group.nodes[0][place]], group.devices[group.nodes[1][place]]);
    for (const LinkId l : paths.network().path_links(path))
      if (!used.insert(l).second) return false;
  }
  return true;
}

// Puts the ranks of a node into the order of its widest ring; gives all its rings.
std::vector<std::vector<std::uint32_t>> order_node(Paths& paths, DeviceGroup& group,
                                                   std::vector<std::uint32_t>& ranks) {
  if (ranks.size() < 3 || ranks.size() > kMostRanksToOrder || !has_cables(paths, group, ranks)) return {ranks};
  std::vector<std::vector<std::uint32_t>> rings = RingSearch(paths, group, ranks).search();
  ranks = rings[0];
  return rings;
}

// Through all nodes: one ring, or with rails one per place, which enters every node there.
std::vector<std::vector<std::uint32_t>> rings_across(const DeviceGroup& group) {
  std::vector<std::vector<std::uint32_t>> rings(group.has_rails ? group.nodes[0].size() : 1);
  for (std::size_t ring = 0; ring < rings.size(); ++ring)
    for (const std::vector<std::uint32_t>& ranks : group.nodes)
      for (std::size_t i = 0; i < ranks.size(); ++i) rings[ring].push_back(ranks[(ring + i) % ranks.size()]);
  return rings;
}

void find_rings(Paths& paths, DeviceGroup& group) {
  for (std::vector<std::uint32_t>& ranks : group.nodes) group.rings = order_node(paths, group, ranks);
  if (group.nodes.size() > 1) group.rings = rings_across(group);
}

void widen(Hop& hop, Paths& paths, std::uint32_t from, std::uint32_t to) {
  const PathId path = paths.between(from, to);
  hop.kind = std::max(hop.kind, paths.kind(path));
  hop.latency_ns = std::max(hop.latency_ns, paths.network().path_latency_ns(path));
  hop.bytes_per_ns = std::min(hop.bytes_per_ns, paths.network().path_bandwidth(path) / 1e9);
}

void measure_hops(Paths& paths, DeviceGroup& group) {
  const auto device = [&](std::uint32_t rank) { return group.devices[rank]; };
  for (std::size_t n = 0; n < group.nodes.size(); ++n) {
    const std::vector<std::uint32_t>& ranks = group.nodes[n];
    const std::vector<std::uint32_t>& next = group.nodes[(n + 1) % group.nodes.size()];
    for (std::size_t i = 0; i < ranks.size() && ranks.size() > 1; ++i)
      widen(group.inside, paths, device(ranks[i]), device(ranks[(i + 1) % ranks.size()]));
    if (group.nodes.size() == 1) continue;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      widen(group.rail, paths, device(ranks[i]), device(next[std::min(i, next.size() - 1)]));
    widen(group.across, paths, device(ranks.back()), device(next.front()));
  }
}

// Where every ring sends at the same rate: what one rank sends in all of them, limited by the fullest link.
double rate_of(Paths& paths, const DeviceGroup& group) {
  std::vector<double> load(paths.topology().links.size(), 0);
  for (const std::vector<std::uint32_t>& ring : group.rings)
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const PathId path = paths.between(group.devices[ring[i]], group.devices[ring[(i + 1) % ring.size()]]);
      for (const LinkId l : paths.network().path_links(path)) load[l] += 1;
    }
  double least = 1e18;
  for (std::size_t l = 0; l < load.size(); ++l)
    if (load[l] > 0) least = std::min(least, static_cast<double>(paths.topology().links[l].bandwidth) / 1e9 / load[l]);
  return least * static_cast<double>(group.rings.size());
}

// The switch that adds for these ranks: the nearest one to which all have ways of their own.
std::optional<Reducer> find_reducer(const Cluster& cluster, Paths& paths, const DeviceGroup& group,
                                    const std::vector<std::uint32_t>& ranks) {
  const Topology& topology = paths.topology();
  std::optional<Reducer> best;
  for (std::uint32_t v = topology.device_count; v < topology.vertices.size(); ++v) {
    Reduction reduction = cluster.switches[topology.vertices[v].type].reduction;
    if (cluster.network == NetworkKind::ideal)
      reduction = {.mode = reduction.mode, .entries = 1 << 30, .entry_bytes = 1 << 30, .round_trip_ns = 1};
    const std::uint32_t node = topology.vertices[v].node;
    const bool is_inside = node == kNone || std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) {
                             return topology.vertices[group.devices[r]].node == node;
                           });
    if (reduction.mode == ReductionMode::none || !is_inside) continue;
    Reducer found{.reduction = reduction, .up = {}, .down = {}, .vertex = v};
    std::set<LinkId> used;
    double narrowest = 1e18;
    bool is_apart = true;
    for (const std::uint32_t r : ranks) {
      std::int64_t latency = 0;
      for (const LinkId l : paths.router().route(group.devices[r], v)) {
        // Behind a switch that adds, a link carries sums, once for all.
        const bool is_shared = !used.insert(l).second;
        const std::uint32_t from = topology.links[l].from;
        is_apart &=
            !is_shared || (!topology.is_device(from) &&
                           cluster.switches[topology.vertices[from].type].reduction.mode != ReductionMode::none);
        latency += topology.links[l].latency_ns;
        narrowest = std::min(narrowest, static_cast<double>(topology.links[l].bandwidth) / 1e9);
        if (is_shared) continue;
        found.up.push_back(l);
        found.down.push_back(l ^ 1);
      }
      found.latency_ns = std::max(found.latency_ns, 2 * latency);
    }
    found.bytes_per_ns = narrowest;
    if (is_apart && (!best || found.up.size() < best->up.size())) best = std::move(found);
  }
  return best;
}

}  // namespace

DeviceGroup make_group(const Cluster& cluster, Paths& paths, std::vector<std::uint32_t> devices) {
  DeviceGroup group;
  group.devices = std::move(devices);
  OVERTAKE_CHECK(std::set(group.devices.begin(), group.devices.end()).size() == group.devices.size(),
                 "a group of {} devices has one of them twice", group.devices.size());
  std::map<std::uint32_t, std::size_t> place;  // of a node in group.nodes
  for (std::uint32_t r = 0; r < group.size(); ++r) {
    OVERTAKE_CHECK(paths.topology().is_device(group.devices[r]), "vertex {} is no device", group.devices[r]);
    const auto [entry, is_new] =
        place.try_emplace(paths.topology().vertices[group.devices[r]].node, group.nodes.size());
    if (is_new) group.nodes.emplace_back();
    group.nodes[entry->second].push_back(r);
  }
  if (group.size() < 2) return group;
  group.torus = find_torus(paths, group);
  group.has_rails = find_rails(paths, group);
  find_rings(paths, group);
  measure_hops(paths, group);
  group.ring_bytes_per_ns = rate_of(paths, group);
  std::vector<std::uint32_t> all(group.size());
  std::iota(all.begin(), all.end(), 0u);
  if (!group.has_rails) {
    group.reducer = find_reducer(cluster, paths, group, all);
    return group;
  }
  for (std::size_t i = 0; i < group.nodes[0].size(); ++i) {
    std::vector<std::uint32_t> rail;
    for (const std::vector<std::uint32_t>& ranks : group.nodes) rail.push_back(ranks[i]);
    std::optional<Reducer> reducer = find_reducer(cluster, paths, group, rail);
    if (reducer) group.rail_reducers.push_back(std::move(*reducer));
  }
  if (group.rail_reducers.size() < group.nodes[0].size()) group.rail_reducers.clear();
  for (const std::vector<std::uint32_t>& ranks : group.nodes) {
    std::optional<Reducer> reducer = find_reducer(cluster, paths, group, ranks);
    if (reducer && paths.topology().vertices[reducer->vertex].node != kNone)
      group.node_reducers.push_back(std::move(*reducer));
  }
  if (group.node_reducers.size() < group.nodes.size()) group.node_reducers.clear();
  return group;
}

void measure_exchange(Paths& paths, DeviceGroup& group) {
  if (group.exchange.bytes_per_ns > 0 || group.size() < 2) return;
  struct Load {
    double pairs = 0;
    LinkKind kind = LinkKind::ici;  // of the slowest way over the link
  };
  std::vector<Load> load(paths.topology().links.size());
  for (const std::uint32_t to : group.devices)
    for (const std::uint32_t from : group.devices) {
      if (from == to) continue;
      const PathId path = paths.between(from, to);
      group.exchange.latency_ns = std::max(group.exchange.latency_ns, paths.network().path_latency_ns(path));
      for (const LinkId l : paths.network().path_links(path)) {
        load[l].pairs += 1;
        load[l].kind = std::max(load[l].kind, paths.kind(path));
      }
    }
  double least = 1e18;  // bytes/ns of each pair
  for (std::size_t l = 0; l < load.size(); ++l) {
    if (load[l].pairs == 0) continue;
    const double share = static_cast<double>(paths.topology().links[l].bandwidth) / 1e9 / load[l].pairs;
    if (share >= least) continue;
    least = share;
    group.exchange.kind = load[l].kind;
  }
  group.exchange.bytes_per_ns = least * (group.size() - 1);
}

}  // namespace overtake
