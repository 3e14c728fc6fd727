#pragma once
// What a message between two stages of a pipeline takes, for schedules, which know one number only.

#include <cstdint>

#include "machine/cluster.h"
#include "plan/divide/blocks.h"
#include "plan/pipeline/schedule.h"
#include "sim/tuning.h"

namespace overtake {

// Nanoseconds from one device to another of what a block usually hands on to the next.
std::int64_t usual_transfer_ns(const BlockGraph& blocks, const Cluster& cluster, const Topology& topology,
                               Protocol protocol, std::uint32_t from, std::uint32_t to);

}  // namespace overtake
