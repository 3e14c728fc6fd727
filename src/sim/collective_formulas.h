#pragma once
// What a collective takes by a formula, latency + bytes / bandwidth, for each algorithm and protocol; and which one
// NCCL would take. The constants are NCCL's (src/graph/tuning.cc of 2.28: baseLatencies, hwLatencies, llMaxBws).

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

// Nanoseconds before the first byte.
std::int64_t base_ns(const DeviceGroup& group, Algorithm algorithm, Protocol protocol);
// Nanoseconds of one hop in all, the links' own latency included.
std::int64_t hop_ns(const Hop& hop, Algorithm algorithm, Protocol protocol);
// Share of the bandwidth that is payload.
double efficiency(LinkKind kind, Algorithm algorithm, Protocol protocol);
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

// The fastest by prediction. Automatic algorithms are those of NCCL: ring, tree, and switches that add; automatic
// protocols all but ideal. A user error where a forced algorithm cannot run.
Choice choose(const DeviceGroup& group, Operation operation, std::int64_t bytes,
              Algorithm algorithm = Algorithm::automatic, Protocol protocol = Protocol::automatic);

}  // namespace overtake
