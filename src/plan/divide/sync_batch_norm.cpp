#include "plan/divide/sync_batch_norm.h"

#include <algorithm>

#include "base/error.h"
#include "plan/divide/detail_editor.h"

namespace overtake {
namespace {

// Operands; see ops/batch_norm.cpp.
constexpr std::size_t kForwardReads = 6, kDgamma = 6, kDbeta = 7;

class Synchroniser {
 public:
  Synchroniser(Detail& plan, const Target& target) : plan_(plan), to_(plan, target) {}

  bool run() {
    const std::uint32_t stages = to_.devices() / plan_.replicas;
    for (std::uint32_t i = 0; i < stages; ++i) {
      members_.clear();
      for (std::uint32_t r = 0; r < plan_.replicas; ++r) members_.push_back(r * stages + i);
      synchronise_stage();
    }
    return is_any_;
  }

 private:
  Graph& graph() { return plan_.plan.graph; }
  bool is_batch_norm(TaskId t, Kind kind) {
    const Task& task = graph().tasks[t];
    return task.op == Op::batch_norm && task.kind == kind && graph().attrs_of(task).integer("training") != 0;
  }

  // All replicas do the same tasks in the same order, so nobody waits for one that waits for him.
  void synchronise_stage() {
    std::vector<std::vector<TaskId>> before, after(members_.size());
    for (const std::uint32_t d : members_) before.push_back(to_.lane(d));
    for (std::size_t place = 0; place < before[0].size(); ++place) {
      std::vector<TaskId> same;
      for (const std::vector<TaskId>& lane : before) same.push_back(lane.at(place));
      if (is_batch_norm(same[0], Kind::forward)) {
        const std::vector<TaskId> moments = share_moments(same);
        for (std::size_t r = 0; r < same.size(); ++r) after[r].push_back(moments[r]);
      } else if (is_batch_norm(same[0], Kind::input_grad)) {
        share_sums(same);
      }
      for (std::size_t r = 0; r < same.size(); ++r) after[r].push_back(same[r]);
    }
    for (std::size_t r = 0; r < members_.size(); ++r) to_.lane(members_[r]) = std::move(after[r]);
  }

  void expect_alike(const std::vector<TaskId>& same) {
    const Task& first = graph().tasks[same[0]];
    for (const TaskId t : same) {
      const Task& task = graph().tasks[t];
      OVERTAKE_CHECK(task.op == first.op && task.kind == first.kind && task.layer == first.layer &&
                         task.micro_batch == first.micro_batch,
                     "replicas do {} and {} at the same place", graph().task_name(same[0]), graph().task_name(t));
    }
    is_any_ = true;
  }

  // The tasks that make them.
  std::vector<TaskId> share_moments(const std::vector<TaskId>& norms) {
    expect_alike(norms);
    const LayerId layer = graph().tasks[norms[0]].layer;
    const std::uint32_t micro_batch = graph().tasks[norms[0]].micro_batch;
    std::vector<TaskId> tasks;
    std::vector<BufferId> own;
    for (std::size_t r = 0; r < norms.size(); ++r) {
      const BufferId x = graph().reads(norms[r])[0];
      own.push_back(to_.add_doubles(graph().layer_name(layer) + ".moments", members_[r],
                                    2 * graph().buffers[x].shape[1], Role::activation));
      tasks.push_back(
          to_.add_task(members_[r], micro_batch, Kind::forward, Op::batch_moments, layer, {}, {x}, {own.back()}));
    }
    const std::vector<BufferId> all = to_.add_all_gather(members_, layer, micro_batch, own);
    for (std::size_t r = 0; r < norms.size(); ++r) {
      const Task& norm = graph().tasks[norms[r]];
      OVERTAKE_CHECK(norm.reads == kForwardReads, "a batch norm reads {} buffers", norm.reads);
      std::vector<BufferId> reads(graph().reads(norm).begin(), graph().reads(norm).end());
      std::vector<BufferId> writes(graph().writes(norm).begin(), graph().writes(norm).end());
      reads.push_back(all[r]);
      // Scratch is for the statistics, which it makes no more.
      if (writes.back() != kNone && graph().buffers[writes.back()].role == Role::scratch) writes.pop_back();
      graph().set_operands(norms[r], reads, writes);
    }
    return tasks;
  }

  void share_sums(const std::vector<TaskId>& gradients) {
    expect_alike(gradients);
    std::vector<std::vector<BufferId>> own, sums;
    for (const TaskId t : gradients) {
      own.push_back({graph().reads(t)[kDgamma], graph().reads(t)[kDbeta]});
      sums.push_back({add_sum(own.back()[0]), add_sum(own.back()[1])});
    }
    to_.add_all_reduce(members_, graph().tasks[gradients[0]].layer, graph().tasks[gradients[0]].micro_batch, own, sums);
    for (std::size_t r = 0; r < gradients.size(); ++r) {
      Task& task = graph().tasks[gradients[r]];
      Attrs attrs = graph().attrs_of(task);
      attrs.set("replicas", std::int64_t{plan_.replicas});
      task.attrs = graph().add_attrs(attrs);
      std::vector<BufferId> reads(graph().reads(task).begin(), graph().reads(task).end());
      const std::vector<BufferId> writes(graph().writes(task).begin(), graph().writes(task).end());
      reads[kDgamma] = sums[r][0];
      reads[kDbeta] = sums[r][1];
      graph().set_operands(gradients[r], reads, writes);
    }
  }
  BufferId add_sum(BufferId like) {
    const BufferId sum = to_.add_like(like);
    graph().buffers[sum].role = Role::gradient;
    return sum;
  }

  Detail& plan_;
  DetailEditor to_;
  std::vector<std::uint32_t> members_;  // of the stage at hand, by replica
  bool is_any_ = false;
};

}  // namespace

Detail synchronise_batch_norms(Detail plan, const Target& target) {
  if (!Synchroniser(plan, target).run())
    fail_user("`sync_batch_norm`: {} has no batch norm; leave it out", plan.plan.graph.model);
  return plan;
}

void drop_moments(Graph& g, TaskId t) {
  if (g.tasks[t].op != Op::batch_norm || g.tasks[t].reads <= kForwardReads) return;
  const std::vector<BufferId> reads(g.reads(t).begin(), g.reads(t).begin() + kForwardReads);
  g.set_operands(t, reads, std::vector<BufferId>(g.writes(t).begin(), g.writes(t).end()));
}

}  // namespace overtake
