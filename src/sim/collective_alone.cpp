#include "sim/collective_alone.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "sim/collective.h"
#include "sim/nccl_tuning.h"

namespace overtake {
namespace {

constexpr std::array kOperations = {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                                    Operation::broadcast,  Operation::all_to_all,     Operation::send_recv};

// More devices than this in one NVLink domain have several hosts, as in a rack of GB200.
constexpr std::uint32_t kMostOfHost = 8;

// Of algbw, as nccl-tests has it.
double bus_factor(Operation operation, double ranks) {
  switch (operation) {
    case Operation::all_reduce:
      return 2 * (ranks - 1) / ranks;
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::all_to_all:
      return (ranks - 1) / ranks;
    case Operation::broadcast:
    case Operation::send_recv:
      return 1;
  }
  return 1;
}

}  // namespace

CollectiveTime time_alone(const Cluster& cluster, const Topology& topology, const std::vector<std::uint32_t>& devices,
                          const CollectiveCase& what, const ClusterOptions& options) {
  OVERTAKE_CHECK(devices.size() >= 2 && what.bytes > 0, "a collective of {} bytes among {} devices", what.bytes,
                 devices.size());
  FlowNetwork network(topology.links);
  Collectives collectives(cluster, topology, network);
  const GroupId all = collectives.add_group(devices);
  CollectiveSpec spec{.group = all,
                      .operation = what.operation,
                      .bytes = what.bytes,
                      .algorithm = options.algorithm,
                      .protocol = options.protocol,
                      .chunk_bytes = options.chunk_bytes,
                      .is_fluid = options.is_fluid};
  std::vector<CollectiveId> parts;
  if (what.operation == Operation::send_recv) {
    spec.algorithm = Algorithm::automatic;
    spec.communicator = static_cast<std::uint32_t>(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i) {
      spec.group = collectives.add_group({devices[i], devices[(i + 1) % devices.size()]});
      parts.push_back(collectives.add(spec));
    }
  } else {
    parts.push_back(collectives.add(spec));
  }
  for (const CollectiveId id : parts) collectives.ready_all(0, id);
  CollectiveTime time;
  while (collectives.next_time() != kNever) {
    const std::int64_t now = collectives.next_time();
    for (const CollectiveReport& report : collectives.advance(now))
      if (report.is_last) time.ns = now;
  }
  const Choice& choice = collectives.choice(parts[0]);
  const DeviceGroup& group = collectives.group(all);
  const bool is_one_host = group.nodes.size() == 1 && group.size() <= kMostOfHost;
  const std::uint32_t of_process = what.devices_per_process > 0 ? what.devices_per_process
                                   : is_one_host                ? group.size()
                                                                : 1;
  if (choice.protocol != Protocol::ideal)
    time.ns = std::max(time.ns, static_cast<std::int64_t>(nccl::host_loop_us(group, of_process) * 1e3));
  time.algorithm = choice.algorithm;
  time.protocol = choice.protocol;
  time.algbw_gbs = time.ns > 0 ? static_cast<double>(what.bytes) / static_cast<double>(time.ns) : 0;
  time.busbw_gbs = time.algbw_gbs * bus_factor(what.operation, static_cast<double>(devices.size()));
  return time;
}

std::optional<Operation> operation_of(std::string_view name) {
  for (const Operation o : kOperations)
    if (to_string(o) == name) return o;
  return {};
}

std::string operation_names() {
  std::string names;
  for (const Operation o : kOperations) names += (names.empty() ? "" : ", ") + std::string(to_string(o));
  return names;
}

}  // namespace overtake
