#pragma once
// A divided step while it is made: its tasks and buffers, which of these a task finds on its device, and the messages
// that bring them there.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "plan/divide/outline.h"

namespace overtake {

// What is divided, and which device has what. What it is made of must outlive it.
struct OutlineProblem {
  OutlineProblem(const BlockGraph& in_blocks, const PipelineProblem& problem, const PipelineSchedule& in_schedule,
                 const OutlineOptions& in_options);

  std::uint32_t device_of(std::uint32_t r, std::uint32_t block, std::uint32_t m) const {
    return r * local + layout.device_of[layout.route(m)][chunk_of[block]];
  }
  // Over replicas only: the two routes of one pipeline bring their sums together at once.
  bool scatters() const { return options.replicas > 1 && options.order == ReductionOrder::scatter_gather; }
  bool updates_late() const {
    return options.replicas > 1 && options.order != ReductionOrder::buckets && !options.updates_wait_for_all;
  }

  const BlockGraph& blocks;
  const PipelineSchedule& schedule;
  const PipelineLayout& layout;
  const OutlineOptions& options;
  std::uint32_t local, micro_batches, devices;  // local: of a replica's pipeline; devices: of all that are kept
  std::vector<std::uint32_t> chunk_of;          // per block
};

class OutlineStep {
 public:
  struct Message {
    TaskId send, recv;
    BufferId made;
    std::uint32_t from, to;
  };
  // A gradient's sum so far on a device, and the last task that computed it there.
  struct Total {
    BufferId sum = kNone;
    TaskId by = kNone;
  };

  // Both must outlive this.
  OutlineStep(const OutlineProblem& problem, Outline& out);

  Graph& graph() { return out_.plan.graph; }
  BufferId add_buffer(BufferId like, std::uint32_t device, Role role, std::int64_t bytes);
  BufferId add_buffer(BufferId like, std::uint32_t device);
  TaskId add_task(Kind kind, Op op, std::uint32_t block, std::uint32_t device, std::uint32_t m, AttrsId attrs,
                  std::span<const BufferId> reads, std::span<const BufferId> writes);
  // What a task of the blocks does, on a device.
  TaskId add_block(TaskId like, std::uint32_t device, std::uint32_t m, std::span<const BufferId> reads,
                   std::span<const BufferId> writes);
  // From the device where a buffer is made to that of its copy.
  const Message& send(BufferId made, BufferId copy, std::uint32_t m);
  void share(BufferId before, BufferId after) { out_.plan.shares.push_back({before, after}); }

  // A buffer of the blocks, for a task on a device: itself, or a copy that is sent there once.
  BufferId operand(BufferId b, std::uint32_t r, std::uint32_t m, std::uint32_t device);
  bool is_total(BufferId b) const { return is_total_[b] != 0; }  // summed over micro-batches
  Total& total(BufferId b, std::uint32_t device) { return totals_[std::size_t{b} * problem_.devices + device]; }
  bool is_made(BufferId b) const { return writer_[b] != kNone; }                 // by a block; else an input
  std::uint32_t maker_of(BufferId b) const { return in_.block_of[writer_[b]]; }  // its block
  const std::vector<Message>& messages() const { return messages_; }

 private:
  BufferId value(BufferId b, std::uint32_t r, std::uint32_t m);
  BufferId value_on(BufferId b, std::uint32_t r, std::uint32_t m, std::uint32_t device);
  BufferId kept_on(BufferId b, std::uint32_t r, std::uint32_t device);
  std::uint32_t reader_block(BufferId b) const;
  std::vector<std::uint32_t> owners_of(BufferId b, std::uint32_t r) const;

  const OutlineProblem& problem_;
  const BlockGraph& in_;
  Outline& out_;
  std::vector<TaskId> writer_;    // per buffer of the blocks
  std::vector<char> is_total_;    // likewise
  std::vector<LayerId> layers_;   // per block
  std::vector<StringId> names_;   // per buffer of the blocks
  std::vector<BufferId> values_;  // [buffer][replica][micro-batch]
  std::vector<BufferId> copies_;  // [buffer][device]: of weights and states
  std::vector<Total> totals_;     // [buffer][device]
  std::unordered_map<std::uint64_t, BufferId> received_;
  std::vector<Message> messages_;
};

}  // namespace overtake
