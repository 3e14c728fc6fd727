#include "overtake/cluster.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/nearest_word.h"
#include "machine/cluster_fields.h"

namespace overtake {
namespace {

// Writes out a cluster: groups of vertices that links name, then the links between them.
class Expansion {
 public:
  explicit Expansion(const Cluster& cluster) : cluster_(cluster) {
    add_devices();
    add_switches();
    for (const LinkType& link : cluster.links) add_links(link);
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
      const Group from = group_of(link.from, n), to = group_of(link.to, n);
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

  void add_cables(const LinkType& link, std::uint32_t a, std::uint32_t b) {
    if (a == b) return;
    const auto bandwidth = static_cast<std::int64_t>(static_cast<double>(link.bandwidth) / link.oversubscription);
    for (std::int32_t i = 0; i < link.count; ++i) {
      topology_.links.push_back({a, b, link.kind, std::max<std::int64_t>(bandwidth, 1), link.latency_ns});
      topology_.links.push_back({b, a, link.kind, std::max<std::int64_t>(bandwidth, 1), link.latency_ns});
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

std::string describe_device(const DeviceType& d) {
  if (d.f32_flops == 0) return fmt::format("measured in {}", d.profile);
  std::string text =
      fmt::format("{} f32, {} tf32, {} bf16; ", print_quantity(d.f32_flops, Measure::flops),
                  print_quantity(d.tf32_flops, Measure::flops), print_quantity(d.bf16_flops, Measure::flops));
  for (const MemoryLevel& m : d.memories)
    text += fmt::format("{}{}{} at {}; ", m.name, m.name.empty() ? "" : " ", print_quantity(m.bytes, Measure::bytes),
                        print_quantity(m.bytes_per_s, Measure::bytes_per_s));
  text += fmt::format("{} SMs", d.sms);
  if (d.kernels != KernelGeneration::generic) text += fmt::format("; {} kernels", to_string(d.kernels));
  if (!d.calibration.empty()) text += fmt::format(", corrected by {}", d.calibration);
  if (!d.profile.empty()) text += fmt::format("; measured in {}", d.profile);
  return text;
}

}  // namespace

Topology make_topology(const Cluster& cluster) { return Expansion(cluster).take(); }

Unreachable find_unreachable(const Topology& topology) {
  // Switches that forward to one another are one set; devices reach one another through a common set or a cable.
  DisjointSets sets(topology.vertices.size());
  for (const DirectedLink& l : topology.links)
    if (!topology.is_device(l.from) && !topology.is_device(l.to)) sets.join(l.from, l.to);
  std::vector<std::vector<std::uint32_t>> near(topology.device_count);  // sets and devices one cable away
  for (const DirectedLink& l : topology.links)
    if (topology.is_device(l.from)) near[l.from].push_back(topology.is_device(l.to) ? l.to : sets.find(l.to));
  std::vector<std::uint32_t> touches(topology.vertices.size(), 0);
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

Cluster load_cluster(const std::string& file_or_preset) {
  const std::size_t colon = file_or_preset.rfind(':');
  const std::string name = file_or_preset.substr(0, colon);
  const std::string_view text = preset_text(name);
  if (text.empty()) {
    const bool is_file = file_or_preset.find('/') != std::string::npos || std::filesystem::exists(file_or_preset) ||
                         file_or_preset.ends_with(".toml");
    if (!is_file)
      fail_user("`machine {}`: no such preset or file; presets are {}, with a number of nodes as in dgx-h100:4{}",
                file_or_preset, fmt::join(preset_names(), ", "), did_you_mean(name, preset_names(), std::identity()));
    Cluster cluster = parse_cluster(read_file(file_or_preset), file_or_preset);
    for (DeviceType& d : cluster.devices)  // files named in it lie beside it
      for (std::string* file : {&d.profile, &d.calibration})
        if (!file->empty()) *file = (std::filesystem::path(file_or_preset).parent_path() / *file).string();
    return cluster;
  }
  Cluster cluster = parse_cluster(text, name);
  if (colon == std::string::npos) return cluster;
  constexpr std::int32_t kMaxNodes = 1 << 16;
  const std::string_view count = std::string_view(file_or_preset).substr(colon + 1);
  std::int32_t nodes = 0;
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), nodes);
  if (error != std::errc() || end != count.data() + count.size() || nodes < 1 || nodes > kMaxNodes)
    fail_user("`machine {}`: \"{}\" is not a number of nodes; write {}:4, at most {}", file_or_preset, count, name,
              kMaxNodes);
  cluster.nodes[0].count = nodes;
  return cluster;
}

std::string describe(const Cluster& cluster) {
  std::int64_t nodes = 0, devices = 0;
  for (const NodeType& n : cluster.nodes) {
    nodes += n.count;
    for (const DeviceSlot& slot : n.devices) devices += std::int64_t{n.count} * slot.count;
  }
  std::string out = fmt::format("{}: {} node{}, {} device{}\n", cluster.name.empty() ? "cluster" : cluster.name, nodes,
                                nodes == 1 ? "" : "s", devices, devices == 1 ? "" : "s");
  for (const NodeType& n : cluster.nodes)
    for (const DeviceSlot& slot : n.devices)
      out += fmt::format("  node {} x{}: {} x{}\n", n.name, n.count, slot.device, slot.count);
  for (const DeviceType& d : cluster.devices) out += fmt::format("  device {}: {}\n", d.name, describe_device(d));
  for (const SwitchType& s : cluster.switches) {
    out += fmt::format("  switch {} x{}", path_of(s.node, s.name), s.count);
    const Reduction& r = s.reduction;
    if (r.mode != ReductionMode::none)
      out += fmt::format(": reduces ({}), {} x {} in {}, {} fixed, {} % of the link", to_string(r.mode), r.entries,
                         print_quantity(r.entry_bytes, Measure::bytes),
                         print_quantity(r.round_trip_ns, Measure::nanoseconds),
                         print_quantity(r.fixed_ns, Measure::nanoseconds), r.efficiency * 100);
    out += '\n';
  }
  for (const LinkType& l : cluster.links) {
    const bool is_network = l.kind == LinkKind::ethernet || l.kind == LinkKind::infiniband;
    out += fmt::format("  link {} - {}: {} {}{} each way, {}", path_of(l.from), path_of(l.to), to_string(l.kind),
                       l.count > 1 ? fmt::format("{} x ", l.count) : "",
                       print_quantity(l.bandwidth, is_network ? Measure::bits_per_s : Measure::bytes_per_s),
                       print_quantity(l.latency_ns, Measure::nanoseconds));
    if (l.wiring == Wiring::rail) out += ", by rail";
    if (l.oversubscription > 1) out += fmt::format(", oversubscribed {}:1", l.oversubscription);
    out += '\n';
  }
  return out;
}

std::string_view to_string(KernelGeneration generation) {
  switch (generation) {
    case KernelGeneration::generic:
      return "generic";
    case KernelGeneration::volta:
      return "volta";
    case KernelGeneration::ampere:
      return "ampere";
    case KernelGeneration::hopper:
      return "hopper";
    case KernelGeneration::cpu:
      return "cpu";
  }
  return "";
}

std::string_view to_string(DeviceTarget target) {
  switch (target) {
    case DeviceTarget::gpu:
      return "gpu";
    case DeviceTarget::cpu:
      return "cpu";
  }
  return "";
}

std::string_view to_string(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink:
      return "NVLink";
    case LinkKind::pcie:
      return "PCIe";
    case LinkKind::ethernet:
      return "Ethernet";
    case LinkKind::infiniband:
      return "InfiniBand";
  }
  return "";
}

std::string_view to_string(ReductionMode mode) {
  switch (mode) {
    case ReductionMode::none:
      return "none";
    case ReductionMode::push:
      return "push";
    case ReductionMode::pull:
      return "pull";
  }
  return "";
}

std::string_view to_string(Wiring wiring) {
  switch (wiring) {
    case Wiring::all:
      return "all";
    case Wiring::rail:
      return "rail";
  }
  return "";
}

}  // namespace overtake
