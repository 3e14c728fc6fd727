#pragma once
// Builds the task-by-task plan: which task and buffer of one micro-batch's step each copy comes from.

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/divide/detail.h"

namespace overtake {

class DetailStep {
 public:
  // What is summed over the micro-batches of a device.
  struct Total {
    BufferId sum = kNone;
    std::vector<BufferId> groups = {};  // of tied weights, instead of the sum: each group is tied first
  };

  // All must outlive this.
  DetailStep(const Graph& step, const BlockGraph& blocks, const Outline& cluster, const DetailOptions& options,
             Detail& out);

  Graph& graph() { return out_.plan.graph; }
  LayerId layer(LayerId of_step);
  BufferId add_buffer(BufferId like, std::uint32_t device, Role role);
  BufferId add_buffer(BufferId like, std::uint32_t device) {
    return add_buffer(like, device, step_.buffers[like].role);
  }
  // On the device of a task of the cluster's plan, where that has its place in a lane.
  TaskId add_task(TaskId of_cluster, Kind kind, Op op, LayerId at, AttrsId attrs, std::span<const BufferId> reads,
                  std::span<const BufferId> writes);

  // What lives across steps, or is the same in all micro-batches: one of a device.
  BufferId on_device(std::uint32_t device, BufferId b);
  bool is_on_device(BufferId b) const { return is_persistent(step_.buffers[b].role) || is_fixed_[b]; }
  bool is_fixed(BufferId b) const { return is_fixed_[b] != 0; }
  TaskId writer_of(BufferId b) const { return writers_[b]; }
  Total& total(BufferId b, std::uint32_t device) { return totals_[std::uint64_t{b} * devices_ + device]; }

  // Of a buffer of the cluster's plan: the buffers of the step it stands for, and what they are here.
  std::span<const BufferId> members(BufferId of_cluster) const {
    return blocks_.buffers[cluster_.buffer_of[of_cluster]];
  }
  bool is_total(BufferId of_cluster) const { return is_total_[cluster_.buffer_of[of_cluster]] != 0; }
  bool is_tied(BufferId of_cluster) const { return is_tied_[cluster_.buffer_of[of_cluster]] != 0; }
  BufferId instance(BufferId of_cluster, BufferId b);
  void set_instance(BufferId of_cluster, BufferId b, BufferId here) { instances_[{of_cluster, b}] = here; }
  // What is summed of a tied weight, group by group: here, or where it was brought to.
  std::vector<BufferId> groups(BufferId of_cluster, BufferId b);

  std::uint32_t devices() const { return devices_; }

  // When all tasks are there.
  void add_parameters();
  void add_lanes();

 private:
  const Graph& step_;
  const BlockGraph& blocks_;
  const Outline& cluster_;
  const Graph& in_;  // the cluster's
  const DetailOptions& options_;
  Detail& out_;
  std::vector<char> is_fixed_;   // per buffer of the step
  std::vector<TaskId> writers_;  // likewise
  std::vector<char> is_total_;   // per buffer of the blocks
  std::vector<char> is_tied_;    // likewise: a tie reads it
  std::uint32_t devices_ = 0;
  std::vector<std::vector<TaskId>> made_;  // per task of the cluster
  std::vector<LayerId> layers_;
  std::unordered_map<std::uint64_t, BufferId> on_device_;
  std::unordered_map<std::uint64_t, Total> totals_;  // by buffer of the step and device
  std::map<std::pair<BufferId, BufferId>, BufferId> instances_;
  std::map<std::pair<BufferId, BufferId>, std::vector<BufferId>> brought_groups_;
  std::set<BufferId> is_brought_;  // of the cluster: by a transfer
};

}  // namespace overtake
