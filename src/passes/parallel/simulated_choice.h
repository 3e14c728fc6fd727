#pragma once
// What a simulation is asked to decide about a step over several devices, whoever simulates it.

#include <cstdint>
#include <functional>

#include "cost/cluster.h"
#include "passes/parallel/blocks.h"
#include "passes/pipeline/schedule.h"
#include "sim/tuning.h"

namespace overtake {

// Nanoseconds from one device to another of what a block usually hands on to the next.
std::int64_t usual_transfer_ns(const BlockGraph& blocks, const Cluster& cluster, const Topology& topology,
                               Protocol protocol, std::uint32_t from, std::uint32_t to);

// Reverse first-k with a larger k than this is the same.
std::uint32_t most_first_k(const PipelineLayout& layout);

// Throughput over k is close to a hill: a grid from 0 to `most` first, then ever closer around its best. `is_best`
// tries a k, each at most once, and says whether it is better than all before.
void search_first_k(std::uint32_t most, const std::function<bool(std::uint32_t k)>& is_best);

}  // namespace overtake
