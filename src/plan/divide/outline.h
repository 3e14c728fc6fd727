#pragma once
// A step of blocks divided over the devices of a cluster: data parallel, in a pipeline, or both.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "overtake/plan.h"
#include "plan/divide/blocks.h"
#include "plan/divide/first_k.h"
#include "plan/pipeline/schedule.h"

namespace overtake {

// How replicas bring their weight gradients together.
enum class ReductionOrder : std::uint8_t {
  buckets,   // several in one all-reduce, in the order they come; all updates when the last is there (PyTorch DDP)
  by_layer,  // one each, layers that forward needs first first; forward waits for its layer's update (ByteScheduler)
  scatter_gather  // reduced in backward, gathered beside the next forward (DeAR)
};
ReductionOrder reduction_order_from_string(std::string_view name);  // buckets, by-layer, scatter-gather

struct OutlineOptions {
  std::uint32_t replicas = 1;
  // Of the replicas, only so many are written out, the first; 0: all. What replicas bring together is of all of them.
  std::uint32_t kept_replicas = 0;
  std::uint32_t kept() const { return kept_replicas > 0 ? kept_replicas : replicas; }
  ReductionOrder order = ReductionOrder::buckets;
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t least_bytes = 1 << 20;  // by layer: smaller ones share a reduction with those that come next
  FirstK first_k = {};
  // Updates wait for the gradients of all layers, as clipping asks for: nothing goes on into the next step.
  bool updates_wait_for_all = false;
};

// A plan over replicas x pipeline devices, and what its tasks take. Device r * d + i is the i-th of the r-th replica's
// d. One lane computes, unless work is put aside (plan/divide/side_lanes); transfers have asynchronous lanes of their
// own.
struct Outline {
  Plan plan;
  std::vector<TaskCost> work;  // per task
  // What tasks and buffers are of the blocks; kNone for transfers and what only they have.
  std::vector<TaskId> task_of = {};
  std::vector<BufferId> buffer_of = {};
  std::uint32_t replicas = 1, micro_batches = 1;
  std::uint32_t devices = 1;  // of all replicas that are written out, also those that have nothing to do
};

// `problem` and `schedule` are over the graph's blocks as stages; one device and one micro-batch will do.
Outline make_outline(const BlockGraph& blocks, const PipelineProblem& problem, const PipelineSchedule& schedule,
                     const OutlineOptions& options);

// The graph's blocks in the terms of pipeline schedules.
std::vector<BlockCosts> block_costs(const BlockGraph& blocks);

}  // namespace overtake
