#pragma once
// What a message between two stages of a pipeline takes, for schedules, which know one number only.

#include <cstdint>
#include <vector>

#include "overtake/cluster.h"
#include "plan/divide/blocks.h"
#include "plan/pipeline/schedule.h"
#include "sim/collective_formulas.h"

namespace overtake {

// Nanoseconds from one device to another of what a block usually hands on to the next.
std::int64_t usual_transfer_ns(const BlockGraph& blocks, const Cluster& cluster, const Topology& topology,
                               Protocol protocol, std::uint32_t from, std::uint32_t to);

// [from][to]: the same between the devices of a pipeline, `stages` of each replica; of replicas, the slowest.
std::vector<std::vector<std::int64_t>> usual_transfers_ns(const BlockGraph& blocks, const Cluster& cluster,
                                                          const Topology& topology, Protocol protocol,
                                                          const std::vector<std::uint32_t>& devices,
                                                          std::uint32_t stages);

// By block: what two devices at opposite ends of a pipeline take to sum their weight gradients of it, as those of a
// two-way layout do; of all such pairs, the slowest.
std::vector<std::int64_t> copy_sums_ns(const BlockGraph& blocks, const Cluster& cluster, const Topology& topology,
                                       const ClusterOptions& options, const std::vector<std::uint32_t>& devices,
                                       std::uint32_t stages);

}  // namespace overtake
