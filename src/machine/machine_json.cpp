// A machine as text, for plan files. Structures of its cluster are written by their members' names.

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "overtake/machine.h"

namespace overtake {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryLevel, name, bytes, bytes_per_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CommunicationCost, sms, in_network_sms, memory_factor, in_network_memory_factor)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceType, name, target, f32_flops, tf32_flops, bf16_flops, memories, sms, profile,
                                   communication)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceSlot, device, count)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeType, name, count, devices)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Reduction, mode, entries, entry_bytes, round_trip_ns, fixed_ns, efficiency)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SwitchType, node, name, count, reduction)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Endpoint, node, name, index)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LinkType, from, to, kind, wiring, count, bandwidth, latency_ns, oversubscription)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Cluster, name, devices, nodes, switches, links)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceFailure, device, at_ns)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClusterOptions, speeds, failures, algorithm, protocol, chunk_bytes, is_fluid,
                                   overlap_slows)

std::string save_json(const Machine& machine) {
  return json{{"kind", machine.kind},
              {"cluster", machine.cluster},
              {"options", machine.options},
              {"memory", machine.memory},
              {"steps", machine.steps},
              {"text", machine.text},
              {"most_lanes", machine.most_lanes},
              {"kernels", machine.kernels}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Machine load_machine_json(std::string_view text) {
  try {
    const json in = json::parse(text);
    Machine machine;
    machine.kind = in.at("kind").get<Machine::Kind>();
    machine.cluster = in.at("cluster").get<Cluster>();
    machine.options = in.at("options").get<ClusterOptions>();
    machine.memory = in.at("memory").get<std::vector<std::int64_t>>();
    machine.steps = in.at("steps").get<int>();
    machine.text = in.at("text").get<std::string>();
    machine.most_lanes = in.at("most_lanes").get<std::size_t>();
    machine.kernels = in.at("kernels").get<DeviceTarget>();
    if (machine.has_devices()) machine.topology = make_topology(machine.cluster);
    return machine;
  } catch (const json::exception& e) {
    fail_user("machine: its text is damaged: {}; save it again", e.what());
  }
}

}  // namespace overtake
