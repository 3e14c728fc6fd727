#include "plan/divide/detail_step.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {
namespace {

// Buffers that hold the same in every micro-batch: made from weights and constants alone.
std::vector<char> fixed_buffers(const Graph& g) {
  std::vector<char> is_fixed(g.buffers.size(), 0);
  const auto is_same = [&](BufferId b) {
    return b == kNone || is_fixed[b] || (is_persistent(g.buffers[b].role) && g.buffers[b].role != Role::state);
  };
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].kind != Kind::forward || g.reads(t).empty() || !std::ranges::all_of(g.reads(t), is_same)) continue;
    for (const BufferId b : g.writes(t))
      if (b != kNone && g.buffers[b].role == Role::activation) is_fixed[b] = 1;
  }
  return is_fixed;
}

}  // namespace

DetailStep::DetailStep(const Graph& step, const BlockGraph& blocks, const Outline& cluster,
                       const DetailOptions& options, Detail& out)
    : step_(step),
      blocks_(blocks),
      cluster_(cluster),
      in_(cluster.plan.graph),
      options_(options),
      out_(out),
      is_fixed_(fixed_buffers(step)),
      writers_(step.buffers.size(), kNone),
      is_total_(blocks.graph.buffers.size(), 0),
      is_tied_(blocks.graph.buffers.size(), 0),
      made_(in_.tasks.size()),
      layers_(step.layers.size(), kNone) {
  for (TaskId t = 0; t < step.tasks.size(); ++t)
    for (const BufferId w : step.writes(t))
      if (w != kNone) writers_[w] = t;
  for (const BlockGraph::Block& block : blocks.blocks) {
    for (const BufferId b : block.gradients) is_total_[b] = 1;
    if (block.tie == kNone) continue;
    for (const BufferId b : blocks.graph.reads(block.tie)) is_tied_[b] = 1;
  }
  devices_ = cluster.devices;
  for (TaskId t = 0; t < in_.tasks.size(); ++t) {
    const Task& task = in_.tasks[t];
    // Not the device's own sum.
    if (task.op == Op::transfer && task.kind != Kind::send && task.kind != Kind::reduce_scatter)
      is_brought_.insert(in_.writes(t).begin(), in_.writes(t).end());
  }
  graph().model = step.model;
  graph().parts = step.parts;
}

LayerId DetailStep::layer(LayerId of_step) {
  LayerId& known = layers_[of_step];
  if (known == kNone) known = graph().add_layer(step_.layer_name(of_step));
  return known;
}

BufferId DetailStep::add_buffer(BufferId like, std::uint32_t device, Role role) {
  Buffer b = step_.buffers[like];
  OVERTAKE_CHECK(b.inside.buffer == kNone, "{} lies inside another image", step_.buffer_name(like));
  b.name = graph().intern(step_.buffer_name(like));
  b.role = role;
  b.device = static_cast<std::uint16_t>(device);
  graph().buffers.push_back(b);
  return static_cast<BufferId>(graph().buffers.size() - 1);
}

TaskId DetailStep::add_task(TaskId of_cluster, Kind kind, Op op, LayerId at, AttrsId attrs,
                            std::span<const BufferId> reads, std::span<const BufferId> writes) {
  const Task& like = in_.tasks[of_cluster];
  const TaskId t = graph().add_task(kind, op, at, attrs, reads, writes);
  graph().tasks[t].device = like.device;
  graph().tasks[t].micro_batch = like.micro_batch;
  graph().tasks[t].is_delayed = like.is_delayed;
  made_[of_cluster].push_back(t);
  return t;
}

BufferId DetailStep::on_device(std::uint32_t device, BufferId b) {
  const auto [it, is_new] = on_device_.try_emplace(std::uint64_t{b} * devices_ + device, kNone);
  if (is_new) it->second = add_buffer(b, device);
  return it->second;
}

// A member of a buffer of the cluster's plan.
BufferId DetailStep::instance(BufferId of_cluster, BufferId b) {
  const Buffer& where = in_.buffers[of_cluster];
  const bool is_copy = is_persistent(step_.buffers[b].role) && !is_persistent(where.role);  // of a tied weight
  if (is_on_device(b) && !is_copy) return on_device(where.device, b);
  const auto known = instances_.find({of_cluster, b});
  if (known != instances_.end()) return known->second;
  if (is_total(of_cluster) && !is_brought_.contains(of_cluster))
    return totals_.at(std::uint64_t{b} * devices_ + where.device).sum;
  return instances_[{of_cluster, b}] = add_buffer(b, where.device, is_copy ? Role::activation : step_.buffers[b].role);
}

std::vector<BufferId> DetailStep::groups(BufferId of_cluster, BufferId b) {
  const std::uint32_t device = in_.buffers[of_cluster].device;
  if (!is_brought_.contains(of_cluster)) return totals_.at(std::uint64_t{b} * devices_ + device).groups;
  std::vector<BufferId>& known = brought_groups_[{of_cluster, b}];
  while (known.size() < options_.groups) known.push_back(add_buffer(b, device));
  return known;
}

void DetailStep::add_parameters() {
  for (const Parameter& p : step_.parameters) {
    const auto is_known = [&](std::uint32_t d) { return on_device_.contains(std::uint64_t{p.buffer} * devices_ + d); };
    bool is_anywhere = false;
    for (std::uint32_t d = 0; d < devices_; ++d) is_anywhere = is_anywhere || is_known(d);
    if (!is_anywhere) on_device(0, p.buffer);  // nothing uses it, but it belongs to the model
    for (std::uint32_t d = 0; d < devices_; ++d) {
      if (!is_known(d)) continue;
      Parameter mine = p;
      mine.buffer = on_device(d, p.buffer);
      mine.gradient = kNone;
      mine.copy = p.copy == kNone ? kNone : on_device(d, p.copy);
      for (StoredPart& part : mine.parts) part.name = graph().intern(step_.string(part.name));
      graph().parameters.push_back(std::move(mine));
    }
  }
  for (const Constant& c : step_.constants)
    for (std::uint32_t d = 0; d < devices_; ++d)
      if (on_device_.contains(std::uint64_t{c.buffer} * devices_ + d))
        graph().constants.push_back({on_device(d, c.buffer), c.bytes});
}

void DetailStep::add_lanes() {
  for (const Lane& lane : cluster_.plan.lanes) {
    Lane mine{lane.device, {}, lane.is_asynchronous};
    for (const TaskId t : lane.tasks) mine.tasks.insert(mine.tasks.end(), made_[t].begin(), made_[t].end());
    out_.plan.lanes.push_back(std::move(mine));
  }
  for (const Wait& w : cluster_.plan.waits)
    if (!made_[w.before].empty() && !made_[w.after].empty())
      out_.plan.waits.push_back({made_[w.before].back(), made_[w.after].front()});
  std::ranges::sort(out_.plan.waits);
  out_.plan.schedule = cluster_.plan.schedule;
}

}  // namespace overtake
