#pragma once
// One collective alone on a machine, timed as nccl-tests does (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md).

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "overtake/cluster_options.h"
#include "sim/collective_formulas.h"

namespace overtake {

struct CollectiveCase {
  Operation operation = Operation::all_reduce;
  std::int64_t bytes = 0;  // nccl-tests' size: what all-reduce sums, all-gather gives out, each device sends
  // nccl-tests' -g: so many devices have one process, which launches their kernels in turn. 0: as its README runs it,
  // one process for all devices of one node of up to eight, and one for each device where there are more.
  std::uint32_t devices_per_process = 0;
};

struct CollectiveTime {
  std::int64_t ns = 0;
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  double algbw_gbs = 0;  // bytes over time
  double busbw_gbs = 0;  // times what an operation makes of it, so that it can be compared with a link
};

// Every device is ready at the same time. A send_recv is from each device to the next, at once. The devices are two or
// more, and different. A user error where the algorithm of `options` cannot run.
CollectiveTime time_alone(const Cluster& cluster, const Topology& topology, const std::vector<std::uint32_t>& devices,
                          const CollectiveCase& what, const ClusterOptions& options);

// "all-reduce" and so on; nothing where there is no such.
std::optional<Operation> operation_of(std::string_view name);
// "all-reduce, reduce-scatter, ..."
std::string operation_names();

}  // namespace overtake
