// Every device, switch and link of a cluster, and whether they reach one another.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "overtake/cluster.h"

namespace overtake {
namespace {

// Of an ideal network: a gigabyte in a nanosecond.
constexpr std::int64_t kIdealBandwidth = 1'000'000'000'000'000'000;

// Writes out a cluster: groups of vertices that links name, then the links between them.
class Expansion {
 public:
  explicit Expansion(const Cluster& cluster) : cluster_(cluster) {
    add_devices();
    add_switches();
    for (const LinkType& link : cluster.links) add_links(link);
    for (const TorusType& torus : cluster.tori) add_torus(torus);
  }
  Topology take() { return std::move(topology_); }

 private:
  using Group = std::vector<std::uint32_t>;         // vertices
  using Key = std::pair<std::string, std::string>;  // node type and name

  void add_devices() {
    std::map<std::string, std::uint32_t> types;
    for (const DeviceType& d : cluster_.devices) types.emplace(d.name, static_cast<std::uint32_t>(types.size()));
    for (const NodeType& node : cluster_.nodes) {
      first_node_[node.name] = topology_.node_count;
      for (std::int32_t n = 0; n < node.count; ++n, ++topology_.node_count)
        for (const DeviceSlot& slot : node.devices)
          add_vertices({node.name, slot.device}, fmt::format("{}.{}/{}", node.name, n, slot.device), slot.count,
                       types.at(slot.device), topology_.node_count);
    }
    topology_.device_count = static_cast<std::uint32_t>(topology_.vertices.size());
  }

  void add_switches() {
    for (std::uint32_t type = 0; type < cluster_.switches.size(); ++type) {
      const SwitchType& s = cluster_.switches[type];
      if (s.node.empty()) {
        add_vertices({"", s.name}, s.name, s.count, type, kNone);
        continue;
      }
      const std::uint32_t first = first_node_.at(s.node);
      for (std::uint32_t n = 0; n < nodes_of(s.node); ++n)
        add_vertices({s.node, s.name}, fmt::format("{}.{}/{}", s.node, n, s.name), s.count, type, first + n);
    }
  }

  // One group of `count` vertices in the key's next node.
  void add_vertices(const Key& key, const std::string& name, std::int32_t count, std::uint32_t type,
                    std::uint32_t node) {
    Group& group = groups_[key].emplace_back();
    for (std::int32_t i = 0; i < count; ++i) {
      group.push_back(static_cast<std::uint32_t>(topology_.vertices.size()));
      topology_.vertices.push_back({fmt::format("{}.{}", name, i), type, node});
    }
  }

  std::uint32_t nodes_of(const std::string& node) const {
    const auto found = std::find_if(cluster_.nodes.begin(), cluster_.nodes.end(),
                                    [&](const NodeType& type) { return type.name == node; });
    return static_cast<std::uint32_t>(found->count);
  }

  Group group_of(const Endpoint& end, std::uint32_t node) const {
    const std::vector<Group>& groups = groups_.at({end.node, end.name});
    const Group& group = groups[end.node.empty() ? 0 : node];
    return end.index < 0 ? group : Group{group[static_cast<std::size_t>(end.index)]};
  }

  void add_links(const LinkType& link) {
    const std::string& node = link.from.node.empty() ? link.to.node : link.from.node;
    const std::uint32_t nodes = node.empty() ? 1 : nodes_of(node);
    for (std::uint32_t n = 0; n < nodes; ++n) {
      Group from = group_of(link.from, n), to = group_of(link.to, n);
      if (link.wiring == Wiring::block) {
        Group& outside = link.from.node.empty() ? from : to;
        outside = {outside[std::size_t{n} * outside.size() / nodes]};
      }
      if (link.wiring == Wiring::rail) {
        const std::size_t most = std::max(from.size(), to.size());
        for (std::size_t i = 0; i < most; ++i) add_cables(link, from[i * from.size() / most], to[i * to.size() / most]);
        continue;
      }
      for (const std::uint32_t a : from)
        for (const std::uint32_t b : to)
          if (link.from != link.to || a < b) add_cables(link, a, b);
    }
  }

  // From each device to the next along each dimension; two that are next to each other on both sides have one cable.
  void add_torus(const TorusType& type) {
    Torus torus;
    for (const Group& group : groups_.at({type.devices.node, type.devices.name}))
      torus.devices.insert(torus.devices.end(), group.begin(), group.end());
    for (const std::int32_t size : shape_of(type, std::ssize(torus.devices)))
      torus.shape.push_back(static_cast<std::uint32_t>(size));
    LinkType link;
    link.kind = type.kind;
    link.bandwidth = type.bandwidth;
    link.latency_ns = type.latency_ns;
    const std::size_t dimensions = torus.shape.size();
    torus.forward.assign(torus.devices.size() * dimensions, kNone);
    std::size_t stride = torus.devices.size();
    for (std::size_t d = 0; d < dimensions; ++d) {
      const std::size_t size = torus.shape[d];
      stride /= size;
      for (std::size_t place = 0; place < torus.devices.size(); ++place) {
        const std::size_t at = place / stride % size, next = at + 1 < size ? place + stride : place - at * stride;
        std::uint32_t& forward = torus.forward[place * dimensions + d];
        if (size == 2 && at == 1) forward = torus.forward[next * dimensions + d] ^ 1;
        if (size == 1 || (size == 2 && at == 1)) continue;
        forward = static_cast<std::uint32_t>(topology_.links.size());
        add_cables(link, torus.devices[place], torus.devices[next]);
      }
    }
    topology_.tori.push_back(std::move(torus));
  }

  void add_cables(const LinkType& link, std::uint32_t a, std::uint32_t b) {
    if (a == b) return;
    const bool is_ideal = cluster_.network == NetworkKind::ideal;
    const auto described = static_cast<std::int64_t>(static_cast<double>(link.bandwidth) / link.oversubscription);
    const std::int64_t bandwidth = is_ideal ? kIdealBandwidth : std::max<std::int64_t>(described, 1);
    const std::int64_t latency = is_ideal ? 0 : link.latency_ns;
    for (std::int32_t i = 0; i < link.count; ++i) {
      topology_.links.push_back({a, b, link.kind, bandwidth, latency});
      topology_.links.push_back({b, a, link.kind, bandwidth, latency});
    }
  }

  const Cluster& cluster_;
  Topology topology_;
  std::map<Key, std::vector<Group>> groups_;  // per node of the type
  std::map<std::string, std::uint32_t> first_node_;
};

// Sets of vertices that grow together.
class DisjointSets {
 public:
  explicit DisjointSets(std::size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0u); }
  std::uint32_t find(std::uint32_t v) {
    while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
    return v;
  }
  void join(std::uint32_t a, std::uint32_t b) { parent_[find(a)] = find(b); }

 private:
  std::vector<std::uint32_t> parent_;
};

}  // namespace

Topology make_topology(const Cluster& cluster) { return Expansion(cluster).take(); }

std::vector<std::int32_t> shape_of(const TorusType& torus, std::int64_t devices) {
  if (!torus.shape.empty()) return torus.shape;
  // Again and again the largest divisor that is not above what equal sizes would be.
  std::vector<std::int32_t> shape;
  for (std::int32_t left = torus.dimensions; left > 0; --left) {
    std::int64_t size = left == 1 ? devices : 1;
    for (std::int64_t s = 1;
         std::pow(static_cast<double>(s), left) <= static_cast<double>(devices) * (1 + 1e-9) && left > 1; ++s)
      if (devices % s == 0) size = s;
    shape.push_back(static_cast<std::int32_t>(size));
    devices /= size;
  }
  std::ranges::sort(shape);
  return shape;
}

Unreachable find_unreachable(const Topology& topology) {
  // Switches that forward to one another are one set; devices reach one another through a common set or a cable. A
  // torus is a set, too, numbered after the vertices.
  DisjointSets sets(topology.vertices.size() + topology.tori.size());
  for (const DirectedLink& l : topology.links)
    if (!topology.is_device(l.from) && !topology.is_device(l.to)) sets.join(l.from, l.to);
  std::vector<std::vector<std::uint32_t>> near(topology.device_count);  // sets and devices one cable away
  for (const DirectedLink& l : topology.links)
    if (topology.is_device(l.from)) near[l.from].push_back(topology.is_device(l.to) ? l.to : sets.find(l.to));
  std::vector<std::uint32_t> touches(topology.vertices.size() + topology.tori.size(), 0);
  for (std::size_t t = 0; t < topology.tori.size(); ++t)
    for (const std::uint32_t d : topology.tori[t].devices)
      near[d].push_back(static_cast<std::uint32_t>(topology.vertices.size() + t));
  for (std::vector<std::uint32_t>& list : near) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    for (const std::uint32_t v : list) ++touches[v];
  }
  for (std::size_t v = topology.device_count; v < touches.size(); ++v)
    if (touches[v] == topology.device_count) return {};
  // Of devices that are near the same, one stands for all; they reach one another if that is a switch.
  std::optional<Unreachable> twins;
  std::map<std::vector<std::uint32_t>, std::uint32_t> first_of;
  std::vector<std::uint32_t> different;
  for (std::uint32_t d = 0; d < topology.device_count; ++d) {
    const auto [first, is_new] = first_of.emplace(near[d], d);
    if (is_new)
      different.push_back(d);
    else if (!twins && (near[d].empty() || topology.is_device(near[d].back())))  // devices come before switches
      twins = {first->second, d};
  }
  for (std::size_t i = 0; i < different.size(); ++i) {
    for (std::size_t j = i + 1; j < different.size(); ++j) {
      const std::uint32_t a = different[i], b = different[j];
      const bool is_cabled = std::binary_search(near[a].begin(), near[a].end(), b);
      const bool shares = std::any_of(near[a].begin(), near[a].end(), [&](std::uint32_t v) {
        return !topology.is_device(v) && std::binary_search(near[b].begin(), near[b].end(), v);
      });
      if (!is_cabled && !shares)
        return twins && std::pair(twins->from, twins->to) < std::pair(a, b) ? *twins : Unreachable{a, b};
    }
  }
  return twins.value_or(Unreachable{});
}

}  // namespace overtake
