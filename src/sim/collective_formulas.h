#pragma once
// What a collective takes by a formula, latency + bytes / bandwidth, for each algorithm and protocol; and which one
// NCCL would take, by its own estimate (sim/nccl_tuning.h).

#include <cstdint>
#include <string_view>

#include "sim/collective_lanes.h"

namespace overtake {

std::string_view to_string(Protocol);

struct Choice {
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::ideal;
  std::int64_t predicted_ns = 0;  // alone in the network, all ranks starting at once
};

// Nanoseconds before the first byte, and those in which pipelines fill: what a collective pays once.
std::int64_t base_ns(const DeviceGroup& group, Operation operation, Algorithm algorithm, Protocol protocol,
                     std::int64_t bytes);
// Nanoseconds of one hop in all, the links' own latency included.
std::int64_t hop_ns(const Hop& hop, Algorithm algorithm, Protocol protocol);
// Most bytes/ns between two devices of a communicator of so many, where that is more than these.
inline constexpr double kNoLimit = 1e18;
double message_limit(const DeviceGroup& group, Protocol protocol, std::int64_t bytes, std::uint32_t communicator = 0);
// What a switch in a node reaches beside trees across nodes, of sums and results together.
double switch_bytes_per_ns(const Reducer& reducer);
// Most bytes/ns on the legs of a switch that adds, for `wire` bytes there that make `bytes` of sums.
double reduction_limit(const Reducer& reducer, double wire, double bytes);

// `bytes` are of the whole vector: what all-reduce sums, reduce-scatter takes in, all-gather gives out.
std::int64_t predict_ns(const DeviceGroup& group, Operation operation, Algorithm algorithm, Protocol protocol,
                        std::int64_t bytes);
// What a ring takes beyond its bytes over the slowest hop. Pieces that wait at that hop hide the latency of others: the
// pace is that of the slowest hop, or of a whole round, whichever is slower.
std::int64_t ring_latency_ns(const DeviceGroup& group, Operation operation, Protocol protocol, std::int64_t bytes);
// What each rank sends, bytes.
double wire_bytes(const DeviceGroup& group, Operation operation, Algorithm algorithm, std::int64_t bytes);

// What NCCL takes: automatic algorithms are ring, tree, and switches in the nodes that add, alone or below trees;
// automatic protocols all but ideal. A user error where a forced algorithm cannot run.
Choice choose(const DeviceGroup& group, Operation operation, std::int64_t bytes,
              Algorithm algorithm = Algorithm::automatic, Protocol protocol = Protocol::automatic);

}  // namespace overtake
