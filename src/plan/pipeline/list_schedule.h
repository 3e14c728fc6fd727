#pragma once
// Orders by a rule: whenever a device is free it runs the ready block with the best rank.

#include <cstdint>
#include <vector>

#include "plan/pipeline/copy_sums.h"
#include "plan/pipeline/schedule.h"

namespace overtake {

struct ListRule {
  std::vector<double> rank;        // [(route * chunks + chunk) * 3 + kind]; the least goes first
  std::vector<std::int64_t> caps;  // by device: bytes of activations it may keep; empty: any
  // A device lets a ready block wait for a better one that is due before this part of its time has passed.
  double patience = 0;
};

// Builds orders for a layout. Micro-batches of a route pass every chunk in order. A forward starts only if all
// micro-batches under way could still be finished one after the other within the cap, so nobody gets stuck.
class ListScheduler {
 public:
  // The problem must outlive it.
  ListScheduler(const PipelineProblem& problem, const PipelineLayout& layout);

  // What finishing one micro-batch on a device takes: the least cap that works.
  std::int64_t least_cap(std::uint32_t device) const { return most_need_[device]; }
  const PipelineLayout& layout() const { return layout_; }

  // The makespan; orders go to `orders`.
  std::int64_t run(const ListRule& rule, ChunkOrders& orders);

 private:
  static constexpr std::int64_t kNever = INT64_MAX;
  // A route's chunk, and its three queues of blocks, one per kind: 3 * its index + kind.
  struct Slot {
    std::uint32_t route, chunk, device;
    BlockCosts costs;
    std::int64_t need;  // the most it keeps of a micro-batch
  };

  std::int64_t ready(std::uint32_t queue) const;
  bool has_room(std::uint32_t queue, const ListRule& rule) const;
  // What a micro-batch, the nth of its route, has on a device, and what it will need beyond that; as if the queue's
  // next block had run.
  struct Claim {
    std::int64_t held = 0, need = 0;
  };
  Claim claim(std::uint32_t device, std::uint32_t route, std::uint32_t n, std::uint32_t queue) const;
  // Runs a block of the device now, or sets when to look again.
  void decide(std::uint32_t device, const ListRule& rule, ChunkOrders& orders);
  void start(std::uint32_t queue, std::int64_t now, ChunkOrders& orders);

  const PipelineProblem* problem_;
  PipelineLayout layout_;
  std::vector<Slot> slots_;
  std::vector<std::vector<std::uint32_t>> micro_batches_;  // by route
  std::vector<std::vector<std::uint32_t>> slots_of_;       // by device
  std::vector<std::int64_t> most_need_;                    // by device
  std::vector<std::uint32_t> count_;                       // by queue: blocks started
  std::vector<std::vector<std::int64_t>> ends_;            // by queue and number in the route
  std::vector<std::int64_t> free_at_, look_at_, live_;     // by device
  CopySums sums_;
};

}  // namespace overtake
