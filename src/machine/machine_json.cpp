// A machine as text, for plan files. Structures of its cluster are written by their members' names.

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "machine/cluster_check.h"
#include "machine/cluster_fields.h"
#include "overtake/machine.h"

namespace overtake {

using nlohmann::json;

OVERTAKE_JSON_STRUCT(MemoryLevel, name, bytes, bytes_per_s)
OVERTAKE_JSON_STRUCT(CommunicationCost, sms, in_network_sms, memory_factor, in_network_memory_factor)
OVERTAKE_JSON_STRUCT(DeviceType, name, target, f32_flops, tf32_flops, bf16_flops, memories, sms, kernels, profile,
                     calibration, communication)
OVERTAKE_JSON_STRUCT(DeviceSlot, device, count)
OVERTAKE_JSON_STRUCT(NodeType, name, count, devices)
OVERTAKE_JSON_STRUCT(Reduction, mode, entries, entry_bytes, round_trip_ns, fixed_ns, efficiency)
OVERTAKE_JSON_STRUCT(SwitchType, node, name, count, reduction)
OVERTAKE_JSON_STRUCT(Endpoint, node, name, index)
OVERTAKE_JSON_STRUCT(LinkType, from, to, kind, wiring, count, bandwidth, latency_ns, oversubscription)
OVERTAKE_JSON_STRUCT(TorusType, devices, shape, dimensions, kind, bandwidth, latency_ns)
OVERTAKE_JSON_STRUCT(Cluster, name, network, devices, nodes, switches, links, tori)
OVERTAKE_JSON_STRUCT(DeviceFailure, device, at_ns)
OVERTAKE_JSON_STRUCT(ClusterOptions, speeds, failures, algorithm, protocol, chunk_bytes, is_fluid, overlap_slows)

namespace {

// Of a device that was measured, numbers may be missing (0).
void check_numbers(const std::vector<ClusterField>& fields) {
  for (const ClusterField& field : fields) {
    if (const auto* count = std::get_if<Count>(&field.place); count != nullptr && *count->value < 0)
      fail_user("machine: {} {} is below 0; save it again", field.key, *count->value);
    if (const auto* number = std::get_if<Integer>(&field.place); number != nullptr && *number->value < 0)
      fail_user("machine: {} {} is below 0; save it again", field.key, *number->value);
    if (const auto* factor = std::get_if<Factor>(&field.place);
        factor != nullptr && !(*factor->value >= factor->least && *factor->value <= factor->most))
      fail_user("machine: {} {} is not from {} to {}; save it again", field.key, *factor->value, factor->least,
                factor->most);
  }
}

// What make_topology() and simulations take for granted.
void check(Cluster cluster) {
  for (DeviceType& device : cluster.devices) {
    check_numbers(fields_of(device));
    for (MemoryLevel& level : device.memories) check_numbers(fields_of(level, device));
  }
  for (SwitchType& s : cluster.switches) check_numbers(fields_of(s));
  std::vector<LinkEnds> ends;
  for (LinkType& link : cluster.links) check_numbers(fields_of(link, ends));
  const auto check_count = [](std::int32_t count, const std::string& of) {
    if (count < 1) fail_user("machine: there are {} of {}; save it again", count, of);
  };
  for (const NodeType& node : cluster.nodes) {
    check_count(node.count, node.name);
    for (const DeviceSlot& slot : node.devices) check_count(slot.count, slot.device);
  }
  for (const SwitchType& s : cluster.switches) check_count(s.count, s.name);
  for (const LinkType& l : cluster.links) {
    check_count(l.count, "a link");
    if (l.bandwidth < 1) fail_user("machine: a link of {} B/s; save it again", l.bandwidth);
  }
  for (const TorusType& t : cluster.tori) {
    check_count(t.dimensions, "the dimensions of a torus");
    for (const std::int32_t size : t.shape) check_count(size, "the devices along a torus");
    if (t.bandwidth < 1 || t.latency_ns < 0)
      fail_user("machine: a torus of {} B/s and {} ns; save it again", t.bandwidth, t.latency_ns);
  }
  // The text has no lines to name.
  check_cluster(cluster,
                {.nodes = std::vector<int>(cluster.nodes.size(), 1),
                 .switches = std::vector<int>(cluster.switches.size(), 1),
                 .links = std::vector<int>(cluster.links.size(), 1),
                 .tori = std::vector<int>(cluster.tori.size(), 1)},
                "machine");
}

void check_devices(const Machine& machine) {
  const std::uint32_t devices = machine.topology.device_count;
  const ClusterOptions& options = machine.options;
  const auto is_of_all = [&](const auto& list) { return list.empty() || list.size() == devices; };
  if (!is_of_all(options.speeds) || !is_of_all(machine.memory))
    fail_user("machine: {} speeds and {} memories of {} devices; save it again", options.speeds.size(),
              machine.memory.size(), devices);
  for (const double speed : options.speeds)
    if (!is_speed(speed)) fail_user("machine: a device of speed {}; save it again", speed);
  for (const DeviceFailure& failure : options.failures)
    if (failure.device >= devices || failure.at_ns < 0)
      fail_user("machine: device {} of {} fails; save it again", failure.device, devices);
}

}  // namespace

std::string save_json(const Machine& machine) {
  return json{
      {"kind", machine.kind},     {"cluster", machine.cluster},       {"options", machine.options},
      {"memory", machine.memory}, {"steps", machine.steps},           {"folds_replicas", machine.folds_replicas},
      {"text", machine.text},     {"most_lanes", machine.most_lanes}, {"kernels", machine.kernels}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Machine load_machine_json(std::string_view text) {
  try {
    const json in = parse_json(text);
    Machine machine;
    machine.kind = checked<Machine::Kind>(in.at("kind"));
    machine.cluster = checked<Cluster>(in.at("cluster"));
    machine.options = checked<ClusterOptions>(in.at("options"));
    machine.memory = checked<std::vector<std::int64_t>>(in.at("memory"));
    machine.steps = checked<int>(in.at("steps"));
    if (in.contains("folds_replicas")) machine.folds_replicas = checked<bool>(in.at("folds_replicas"));
    machine.text = in.at("text").get<std::string>();
    machine.most_lanes = checked<std::size_t>(in.at("most_lanes"));
    machine.kernels = checked<DeviceTarget>(in.at("kernels"));
    if (machine.kind > Machine::Kind::one_lane || machine.kernels > DeviceTarget::cpu)
      fail_user("machine: it is of no known kind; save it again");
    if (!machine.has_devices()) return machine;
    check(machine.cluster);
    machine.topology = make_topology(machine.cluster);
    check_devices(machine);
    return machine;
  } catch (const json::exception& e) {
    fail_user("machine: its text is damaged: {}; save it again", e.what());
  }
}

}  // namespace overtake
