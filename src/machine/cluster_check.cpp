#include "machine/cluster_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "machine/cluster_fields.h"

namespace overtake {
namespace {

constexpr std::int64_t kMaxVertices = 1 << 20, kMaxLinks = 1 << 22;

class Checker {
 public:
  Checker(const Cluster& cluster, const ClusterLines& lines, const std::string& where)
      : cluster_(cluster), lines_(lines), where_(where) {}

  void check() {
    check_names();
    check_links();
    check_tori();
    check_reach();
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(int line, fmt::format_string<Args...> text, Args&&... args) const {
    fail_user("{}:{}: {}", where_, line, fmt::format(text, std::forward<Args>(args)...));
  }

  void check_names() {
    if (cluster_.nodes.empty()) fail(1, "node: no section of this kind; add [node.NAME] with its devices");
    std::set<std::string> devices;
    for (const DeviceType& d : cluster_.devices) devices.insert(d.name);
    for (std::size_t i = 0; i < cluster_.nodes.size(); ++i) {
      const NodeType& node = cluster_.nodes[i];
      for (const DeviceSlot& slot : node.devices) {
        if (!devices.contains(slot.device))
          fail(lines_.nodes[i], "devices: unknown device: \"{}\"; describe it in a section [device.{}]", slot.device,
               slot.device);
        ends_.emplace(path_of(node.name, slot.device), slot.count);
        slots_.emplace_back(path_of(node.name, slot.device), std::int64_t{node.count} * slot.count);
        vertices_ += std::int64_t{node.count} * slot.count;
      }
      node_counts_[node.name] = node.count;
    }
    for (std::size_t i = 0; i < cluster_.switches.size(); ++i) {
      const SwitchType& s = cluster_.switches[i];
      if (!ends_.emplace(path_of(s.node, s.name), s.count).second)
        fail(lines_.switches[i], "switch: \"{}\" is a device already; give it another name", path_of(s.node, s.name));
      vertices_ += std::int64_t{s.count} * (s.node.empty() ? 1 : node_counts_[s.node]);
    }
    if (vertices_ > kMaxVertices)
      fail(lines_.nodes[0], "node: too large: {} devices and switches; at most {}", vertices_, kMaxVertices);
  }

  void check_links() const {
    std::int64_t links = 0;
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
      const LinkType& l = cluster_.links[i];
      std::int64_t pairs = l.count;
      for (const Endpoint* e : {&l.from, &l.to}) {
        const auto end = ends_.find(path_of(e->node, e->name));
        if (end == ends_.end())
          fail(lines_.links[i],
               "link: unknown end: \"{}\"; write NODE/DEVICE, NODE/SWITCH or SWITCH as the sections are named",
               path_of(e->node, e->name));
        if (e->index >= end->second)
          fail(lines_.links[i], "link: index out of range: \"{}.{}\"; there are {}, from 0", end->first, e->index,
               end->second);
        pairs *= e->index >= 0 || l.wiring == Wiring::rail ? 1 : end->second;
      }
      if (!l.from.node.empty() && !l.to.node.empty() && l.from.node != l.to.node)
        fail(lines_.links[i], "link: ends in two kinds of nodes: {} and {}; put a switch outside them between",
             l.from.node, l.to.node);
      if (l.wiring == Wiring::block && l.from.node.empty() == l.to.node.empty())
        fail(lines_.links[i],
             "link: wiring \"block\" between {} and {}: it joins nodes to switches outside them; name one of each",
             path_of(l.from), path_of(l.to));
      if (l.from == l.to && l.from.index >= 0) fail(lines_.links[i], "link: both ends are the same; name two");
      const std::string& node = l.from.node.empty() ? l.to.node : l.from.node;
      links += pairs * (node.empty() ? 1 : node_counts_.at(node));
      if (links > kMaxLinks) fail(lines_.links[i], "link: too many links: {}; at most {}", links, kMaxLinks);
    }
  }

  void check_tori() const {
    std::set<std::string> taken;
    for (std::size_t i = 0; i < cluster_.tori.size(); ++i) {
      const TorusType& t = cluster_.tori[i];
      const int line = lines_.tori[i];
      const std::string path = path_of(t.devices);
      const auto slot = std::ranges::find(slots_, path, &std::pair<std::string, std::int64_t>::first);
      if (slot == slots_.end())
        fail(line, "torus: no devices: \"{}\"; write NODE/DEVICE as the sections are named", path);
      if (!taken.insert(path).second) fail(line, "torus: \"{}\" is in another torus already; leave one out", path);
      constexpr std::int32_t kMaxDimensions = 6;
      if (t.dimensions > kMaxDimensions || std::ssize(t.shape) > kMaxDimensions)
        fail(line, "torus: {} dimensions; at most {}", std::max<std::int64_t>(t.dimensions, std::ssize(t.shape)),
             kMaxDimensions);
      const std::int64_t links = slot->second * (t.shape.empty() ? t.dimensions : std::ssize(t.shape));
      if (links > kMaxLinks) fail(line, "torus: too many links: {}; at most {}", links, kMaxLinks);
      if (t.shape.empty()) continue;
      std::int64_t places = 1;
      for (const std::int32_t size : t.shape) places = std::min(places * size, kMaxVertices + 1);
      if (places != slot->second)
        fail(line, "torus: shape {} has {}{} places, and there are {} of {}; give as many, or leave the shape out",
             fmt::join(t.shape, " x "), places > kMaxVertices ? "more than " : "", std::min(places, kMaxVertices),
             slot->second, path);
    }
  }

  void check_reach() const {
    const Topology topology = make_topology(cluster_);
    const Unreachable pair = find_unreachable(topology);
    if (pair.from == pair.to) return;
    std::size_t type = 0;  // the node type of the second device
    for (std::int64_t first = 0; type + 1 < cluster_.nodes.size(); ++type)
      if (first += cluster_.nodes[type].count; first > topology.vertices[pair.to].node) break;
    fail(lines_.nodes[type],
         "link: missing: {} cannot reach {}; add [[link]] sections that join them through switches, or a [[torus]]",
         topology.vertices[pair.from].name, topology.vertices[pair.to].name);
  }

  const Cluster& cluster_;
  const ClusterLines& lines_;
  const std::string& where_;
  std::map<std::string, std::int32_t> ends_;                 // what a link may name: how many of it
  std::map<std::string, std::int32_t> node_counts_;          // per node type
  std::vector<std::pair<std::string, std::int64_t>> slots_;  // devices of a kind in all nodes of a kind
  std::int64_t vertices_ = 0;
};

}  // namespace

void check_cluster(const Cluster& cluster, const ClusterLines& lines, const std::string& where) {
  Checker(cluster, lines, where).check();
}

}  // namespace overtake
