#pragma once
// What NCCL counts on when it chooses an algorithm and a protocol: constants and formulas of its src/graph/tuning.cc
// and src/graph/search.cc (2.28), and what was measured beyond them. Times are in microseconds, rates in bytes/ns.

#include <cstdint>

#include "overtake/cluster_options.h"
#include "sim/collective_lanes.h"

namespace overtake::nccl {

// Whose constants count: told by how wide the NVLinks of a device are (25, 200, 400 and 800 GB/s each way and more).
enum class Generation : std::uint8_t { volta, ampere, hopper, blackwell };
Generation generation_of(const DeviceGroup& group);

// Before the first byte, by the algorithm and protocol alone.
double base_latency_us(Algorithm algorithm, Protocol protocol);
// Of one hop over such a link.
double hop_us(LinkKind kind, Algorithm algorithm, Protocol protocol);
// Share of a link that is payload, for one collective over the group: what protocols add to the data, what all channels
// together reach, and NCCL's correction of trees for messages of this size.
double payload_share(const DeviceGroup& group, LinkKind kind, Algorithm algorithm, Protocol protocol,
                     std::int64_t bytes);
// Pipelines of pieces fill and drain once; the pieces grow with the message up to NCCL's largest. `steps` are those of
// a ring. Calibrated: docs/validation-method.md.
double fill_us(const DeviceGroup& group, Algorithm algorithm, Protocol protocol, double steps, double bytes);
// Rings across nodes: a step inside waits for the network's thread.
double inner_hop_us(const DeviceGroup& group, Algorithm algorithm, Protocol protocol);

// How long NCCL thinks it takes, which decides what it does (ncclTopoGetAlgoTime); below zero: it does not consider it.
double estimate_us(const DeviceGroup& group, Operation operation, Algorithm algorithm, Protocol protocol,
                   std::int64_t bytes);

// Between two devices, NCCL uses more channels the larger the message is (src/enqueue.cc): bytes/ns at most, in a
// communicator of `ranks`.
double message_limit(std::uint32_t ranks, std::int64_t bytes);

// nccl-tests' loop: one process calls NCCL for each of its devices and launches a kernel there.
double host_loop_us(const DeviceGroup& group, std::uint32_t devices_per_process);

}  // namespace overtake::nccl
