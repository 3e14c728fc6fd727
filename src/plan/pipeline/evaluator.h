#pragma once
// Times of orders, for searches.

#include <cstdint>
#include <vector>

#include "plan/pipeline/copy_sums.h"
#include "plan/pipeline/schedule.h"

namespace overtake {

// Times of many orders on one layout, without allocating. O(blocks).
class PipelineEvaluator {
 public:
  PipelineEvaluator(const PipelineProblem& problem, const PipelineLayout& layout);

  static constexpr std::int64_t kStuck = -1;
  // The makespan, or kStuck.
  std::int64_t run(const ChunkOrders& orders);
  // Of the last run, by block_id; kStuck: did not run.
  const std::vector<std::int64_t>& ends() const { return ends_; }
  std::int64_t start(const ChunkTask& b) const { return ends_[block_id(*problem_, b)] - costs(b).ns(b.kind); }
  // When all that a block waits for, beyond its own device's order, had come; kStuck: has not.
  std::int64_t ready(const ChunkTask& b) const;
  // Of the last run: blocks that each device ran before it was stuck.
  const std::vector<std::uint32_t>& ran() const { return next_; }

  // Of the last run, if it ended with a sum of gradients that devices have both: the chunk whose gradients that waited
  // for; kNone: it ended with a block.
  std::uint32_t last_sum() const { return last_sum_; }

  // Of the block's chunk, on the device that runs it.
  const BlockCosts& costs(const ChunkTask& b) const {
    return costs_[std::size_t{layout_.route(b.micro_batch)} * layout_.chunks() + b.chunk];
  }
  std::uint32_t chunks() const { return layout_.chunks(); }
  // Without weights.
  std::int64_t peak_activation_bytes(const std::vector<ChunkTask>& order) const;
  std::int64_t weight_bytes(std::uint32_t device) const { return weights_[device]; }
  std::uint32_t device(std::uint32_t chunk, std::uint32_t micro_batch) const {
    return layout_.device_of[layout_.route(micro_batch)][chunk];
  }

 private:
  // Of a block and those it is joined to.
  std::int64_t ready_together(const std::vector<ChunkTask>& order, std::size_t first) const;
  // The device whose next block may have waited for this one.
  void wake(const ChunkOrders& orders, const ChunkTask& done);

  const PipelineProblem* problem_;
  PipelineLayout layout_;
  std::vector<BlockCosts> costs_;          // by route and chunk
  std::vector<std::int64_t> weights_;      // by device
  std::vector<std::int64_t> ends_, left_;  // by block id; left: when the result set out
  std::vector<std::uint32_t> next_, awake_;
  std::vector<std::int64_t> free_at_;  // by device
  CopySums sums_;
  std::uint32_t last_sum_ = kNone;
  std::vector<std::int64_t> done_;  // by chunk: its last weight gradient; scratch
};

}  // namespace overtake
