#include "plan/divide/detail.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "passes/weights.h"
#include "plan/divide/detail_step.h"
#include "plan/divide/detail_transfers.h"
#include "plan/divide/gradient_sum.h"

namespace overtake {
namespace {

constexpr std::int64_t kSaltsOfAMicroBatch = 1 << 16;

class DetailBuilder {
 public:
  DetailBuilder(const Graph& step, const BlockGraph& blocks, const Outline& cluster, const DetailOptions& options)
      : step_(step),
        blocks_(blocks),
        cluster_(cluster),
        in_(cluster.plan.graph),
        options_(options),
        to_(step, blocks, cluster, options, out_),
        local_(to_.devices() / cluster.replicas),
        is_tie_(blocks.graph.tasks.size(), 0) {
    OVERTAKE_CHECK(!blocks.tasks.empty(), "blocks of {} that stand for no tasks", blocks.graph.model);
    for (const BlockGraph::Block& block : blocks.blocks)
      if (block.tie != kNone) is_tie_[block.tie] = 1;
    for (TaskId t = 0; t < in_.tasks.size(); ++t)
      if (is_gradient_piece(t))
        micro_batches_of_[{in_.tasks[t].device, cluster.task_of[t]}].insert(in_.tasks[t].micro_batch);
  }

  Detail run() {
    // In the order in which an outline has them: each device's as on one lane, whatever lane they are on now.
    for (TaskId t = 0; t < in_.tasks.size(); ++t)
      if (in_.tasks[t].op == Op::block && in_.tasks[t].kind != Kind::update && !is_tie(t)) add_block(t);
    DetailTransfers transfers(step_, cluster_, to_);
    for (TaskId t = 0; t < in_.tasks.size(); ++t)
      if (in_.tasks[t].kind == Kind::send) transfers.add_send(t);
    for (TaskId t = 0; t < in_.tasks.size(); ++t) {
      if (in_.tasks[t].kind == Kind::recv)
        transfers.add_recv(t);
      else if (is_tie(t))
        add_tie(t);
      else if (in_.tasks[t].kind == Kind::update)
        add_block(t);
      else if (in_.tasks[t].op == Op::transfer && in_.tasks[t].kind != Kind::send)
        transfers.add_collective(t);
    }
    to_.add_parameters();
    add_losses();
    to_.add_lanes();
    out_.replicas = cluster_.replicas;
    out_.devices = cluster_.devices;
    out_.micro_batches = cluster_.micro_batches;
    return std::move(out_);
  }

 private:
  using Here = std::unordered_map<BufferId, BufferId>;  // a buffer of the step -> where a block has it
  // What is summed over the micro-batches of a device so far, within a group.
  struct Group {
    std::map<std::uint32_t, BufferId> waiting;  // by turn: made, but those before are not
    std::uint32_t added = 0;
    BufferId sum = kNone;
  };
  // Which of the gradients that are summed on a device one is.
  struct Turn {
    std::uint32_t index, of_a_group;
    bool is_first() const { return index % of_a_group == 0; }
    bool is_last() const { return (index + 1) % of_a_group == 0; }
  };

  bool is_gradient_piece(TaskId t) const {
    const Kind kind = in_.tasks[t].kind;
    return in_.tasks[t].op == Op::block && !is_tie(t) && (kind == Kind::input_grad || kind == Kind::weight_grad);
  }
  bool is_tie(TaskId t) const { return in_.tasks[t].op == Op::block && is_tie_[cluster_.task_of[t]] != 0; }

  // Every group for itself, as a replica would, then the groups.
  void add_tie(TaskId t) {
    Here sum;
    for (std::uint32_t g = 0; g < options_.groups; ++g) {
      Here here;
      for (const BufferId c : in_.reads(t))
        for (const BufferId b : to_.members(c)) here[b] = to_.groups(c, b).at(g);
      for (const TaskId of_step : blocks_.tasks[cluster_.task_of[t]]) clone(t, of_step, here);
      for (const BufferId c : in_.writes(t))
        for (const BufferId b : to_.members(c))
          sum[b] = g == 0 ? here.at(b) : sum_of(t, b, sum.at(b), here.at(b), step_.buffers[b].dtype);
    }
    for (const BufferId c : in_.writes(t))
      for (const BufferId b : to_.members(c)) to_.set_instance(c, b, sum.at(b));
  }

  void add_block(TaskId t) {
    const bool is_update = in_.tasks[t].kind == Kind::update;
    Here here;
    for (const BufferId c : in_.reads(t))
      if (is_update || !to_.is_total(c))
        for (const BufferId b : to_.members(c)) here[b] = to_.instance(c, b);
    for (const BufferId c : in_.writes(t))
      if (is_update || !to_.is_total(c))
        for (const BufferId b : to_.members(c)) here[b] = to_.instance(c, b);
    const auto for_each_gradient = [&](auto&& body) {
      for (const BufferId c : in_.writes(t))
        if (!is_update && to_.is_total(c))
          for (const BufferId b : to_.members(c)) body(c, b);
    };
    for_each_gradient([&](BufferId, BufferId b) { let_writer_add(t, b, here); });
    for (const TaskId of_step : blocks_.tasks[cluster_.task_of[t]]) clone(t, of_step, here);
    for_each_gradient([&](BufferId c, BufferId b) { add_up(t, b, here.at(b), to_.is_tied(c)); });
  }

  void clone(TaskId t, TaskId of_step, Here& here) {
    const Task& task = step_.tasks[of_step];
    const std::uint32_t device = in_.tasks[t].device;
    const auto writes_of_step = step_.writes(of_step);
    const bool is_same = !writes_of_step.empty() && std::ranges::all_of(writes_of_step, [&](BufferId b) {
      return b != kNone && (to_.is_fixed(b) || step_.buffers[b].role == Role::scratch);
    });
    if (is_same && !made_once_.insert(std::uint64_t{of_step} * to_.devices() + device).second) return;
    const auto find = [&](BufferId b) -> BufferId {
      if (b == kNone) return kNone;
      if (const auto known = here.find(b); known != here.end()) return known->second;
      if (to_.is_on_device(b)) return to_.on_device(device, b);
      return here[b] = to_.add_buffer(b, device);
    };
    std::vector<BufferId> reads, writes;
    for (const BufferId b : step_.reads(of_step)) {
      reads.push_back(find(b));
      if (b != kNone && step_.buffers[b].role == Role::input) note_input(reads.back(), t);
    }
    for (const BufferId b : writes_of_step) {
      writes.push_back(find(b));
      const auto loss = std::ranges::find(step_.losses, b);
      if (loss == step_.losses.end()) continue;
      const auto [replica, micro_batch] = place_of(t);
      losses_[{replica, micro_batch, static_cast<std::uint32_t>(loss - step_.losses.begin())}] = writes.back();
    }
    const bool is_part = !writes.empty() && added_to_.contains(writes[0]);
    if (is_part) {
      if (const BufferId sum = added_to_.at(writes[0]); sum != kNone) reads.push_back(sum);
      const BufferId last = writes_of_step.back();
      if (last != kNone && step_.buffers[last].role == Role::scratch) writes.pop_back();
    }
    const TaskId made = to_.add_task(t, task.kind, task.op, to_.layer(task.layer), attrs_of(t, task), reads, writes);
    if (is_part) add_scratch(to_.graph(), made, *options_.target);
  }

  std::pair<std::uint32_t, std::uint32_t> place_of(TaskId t) const {
    return {in_.tasks[t].device / local_, in_.tasks[t].micro_batch};
  }
  void note_input(BufferId b, TaskId t) {
    if (!noted_.insert(b).second) return;
    const auto [replica, micro_batch] = place_of(t);
    out_.inputs.push_back({b, replica, micro_batch});
  }

  // A random number is of its micro-batch, and every loss counts as much as the others.
  AttrsId attrs_of(TaskId t, const Task& task) {
    Attrs attrs = step_.attrs_of(task);
    const auto [replica, micro_batch] = place_of(t);
    const std::int64_t index = std::int64_t{replica} * cluster_.micro_batches + micro_batch;
    if (attrs.has("salt")) attrs.set("salt", attrs.integer("salt") + kSaltsOfAMicroBatch * index);
    if ((task.op == Op::cross_entropy || task.op == Op::mse) && task.kind == Kind::input_grad)
      attrs.set("scale", attrs.real("scale", 1.0) / (cluster_.replicas * cluster_.micro_batches));
    return to_.graph().add_attrs(attrs);
  }

  Group& group_of(TaskId t, BufferId b) { return groups_[std::uint64_t{b} * to_.devices() + in_.tasks[t].device]; }
  Turn turn_of(TaskId t) const {
    const std::set<std::uint32_t>& all = micro_batches_of_.at({in_.tasks[t].device, cluster_.task_of[t]});
    return {static_cast<std::uint32_t>(std::distance(all.begin(), all.find(in_.tasks[t].micro_batch))),
            static_cast<std::uint32_t>(std::max<std::size_t>(1, all.size() / options_.groups))};
  }

  // Before the task that makes a gradient: where the sum so far is there and the task can add to it, it will. Where it
  // could but those before are not there yet, the gradient is made as if, so that the sum has the same bits.
  void let_writer_add(TaskId t, BufferId b, Here& here) {
    const Turn turn = turn_of(t);
    const GradientSum how = gradient_sum(step_, b, to_.writer_of(b), options_.target);
    if (turn.of_a_group == 1 || !how.is_added_by_writer || (how.is_rounded && turn.is_last())) return;
    here[b] = add_sum(t, b, DType::f32);
    const Group& group = group_of(t, b);
    added_to_[here[b]] = !turn.is_first() && group.added == turn.index ? group.sum : kNone;
  }

  void add_up(TaskId t, BufferId b, BufferId gradient, bool is_tied) {
    const Turn turn = turn_of(t);
    Group& group = group_of(t, b);
    DetailStep::Total& total = to_.total(b, in_.tasks[t].device);
    const DType dtype = step_.buffers[b].dtype;
    group.waiting[turn.index] = gradient;
    for (auto next = group.waiting.find(group.added); next != group.waiting.end();
         next = group.waiting.find(group.added)) {
      const bool is_last = Turn{group.added, turn.of_a_group}.is_last();
      const auto added = added_to_.find(next->second);
      const bool is_in_it = added != added_to_.end() && added->second != kNone;
      if (group.sum == kNone || is_in_it)
        group.sum = next->second;
      else
        group.sum = sum_of(t, b, group.sum, next->second, is_last ? dtype : DType::f32);
      group.waiting.erase(next);
      ++group.added;
      if (!is_last) continue;
      const BufferId sum = std::exchange(group.sum, kNone);
      if (is_tied)
        total.groups.push_back(sum);
      else
        total.sum = total.sum == kNone ? sum : sum_of(t, b, total.sum, sum, dtype);
    }
  }
  BufferId add_sum(TaskId t, BufferId b, DType dtype) {
    const BufferId sum = to_.add_buffer(b, in_.tasks[t].device);
    to_.graph().buffers[sum].dtype = dtype;
    return sum;
  }
  BufferId sum_of(TaskId t, BufferId b, BufferId before, BufferId next, DType dtype) {
    const BufferId sum = add_sum(t, b, dtype);
    const BufferId reads[] = {before, next};
    to_.add_task(t, Kind::weight_grad, Op::sum, to_.layer(step_.tasks[to_.writer_of(b)].layer),
                 to_.graph().add_attrs({}), reads, {&sum, 1});
    return sum;
  }

  void add_losses() {
    for (const auto& [loss, buffer] : losses_) {
      out_.losses.push_back(loss);
      to_.graph().losses.push_back(buffer);
    }
  }

  const Graph& step_;
  const BlockGraph& blocks_;
  const Outline& cluster_;
  const Graph& in_;  // the cluster's
  const DetailOptions& options_;
  Detail out_;
  DetailStep to_;             // of out_
  std::uint32_t local_;       // devices of a replica
  std::vector<char> is_tie_;  // per task of the blocks
  std::set<std::uint64_t> made_once_;
  std::set<BufferId> noted_;
  std::map<std::pair<std::uint32_t, TaskId>, std::set<std::uint32_t>> micro_batches_of_;  // of a device's gradients
  std::unordered_map<std::uint64_t, Group> groups_;  // by buffer of the step and device
  // What products make as parts of a sum -> the sum so far, where they add to that; else none.
  std::unordered_map<BufferId, BufferId> added_to_;
  std::map<Detail::Loss, BufferId> losses_;
};

}  // namespace

Detail make_detail(const Graph& step, const BlockGraph& blocks, const Outline& cluster, const DetailOptions& options) {
  return DetailBuilder(step, blocks, cluster, options).run();
}

}  // namespace overtake
