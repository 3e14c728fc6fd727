#include "overtake/cluster.h"

#include <fmt/ranges.h>

#include <charconv>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/nearest_word.h"
#include "machine/cluster_fields.h"

namespace overtake {
namespace {

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
  if (cluster.network == NetworkKind::ideal) out += "  network: ideal, transfers take no time\n";
  for (const LinkType& l : cluster.links) {
    const bool is_network = l.kind == LinkKind::ethernet || l.kind == LinkKind::infiniband;
    out += fmt::format("  link {} - {}: {} {}{} each way, {}", path_of(l.from), path_of(l.to), to_string(l.kind),
                       l.count > 1 ? fmt::format("{} x ", l.count) : "",
                       print_quantity(l.bandwidth, is_network ? Measure::bits_per_s : Measure::bytes_per_s),
                       print_quantity(l.latency_ns, Measure::nanoseconds));
    if (l.wiring == Wiring::rail) out += ", by rail";
    if (l.wiring == Wiring::block) out += ", in blocks of nodes";
    if (l.oversubscription > 1) out += fmt::format(", oversubscribed {}:1", l.oversubscription);
    out += '\n';
  }
  for (const TorusType& t : cluster.tori) {
    std::int64_t members = 0;
    for (const NodeType& n : cluster.nodes)
      for (const DeviceSlot& slot : n.devices)
        if (n.name == t.devices.node && slot.device == t.devices.name) members += std::int64_t{n.count} * slot.count;
    out += fmt::format("  torus of {}: {}, {} {} each way to each neighbour, {}\n", path_of(t.devices),
                       fmt::join(shape_of(t, members), " x "), to_string(t.kind),
                       print_quantity(t.bandwidth, Measure::bytes_per_s),
                       print_quantity(t.latency_ns, Measure::nanoseconds));
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
    case LinkKind::ici:
      return "ICI";
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
    case Wiring::block:
      return "block";
  }
  return "";
}

std::string_view to_string(NetworkKind network) {
  switch (network) {
    case NetworkKind::modelled:
      return "modelled";
    case NetworkKind::ideal:
      return "ideal";
  }
  return "";
}

}  // namespace overtake
