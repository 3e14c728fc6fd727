// What one device does of a task-by-task plan, and what all do on one lane.

#include <algorithm>
#include <utility>

#include "plan/divide/detail.h"

namespace overtake {

Detail part_of(const Detail& whole, std::uint32_t device) {
  const Graph& in = whole.plan.graph;
  Detail out;
  out.replicas = whole.replicas;
  out.devices = whole.devices;
  out.micro_batches = whole.micro_batches;
  Graph& g = out.plan.graph;
  g.model = in.model;
  g.parts = in.parts;
  std::vector<BufferId> buffer(in.buffers.size(), kNone);
  std::vector<TaskId> task(in.tasks.size(), kNone);
  for (BufferId b = 0; b < in.buffers.size(); ++b) {
    if (in.buffers[b].device != device) continue;
    Buffer mine = in.buffers[b];
    mine.name = g.intern(in.buffer_name(b));
    mine.device = 0;
    buffer[b] = static_cast<BufferId>(g.buffers.size());
    g.buffers.push_back(mine);
  }
  for (TaskId t = 0; t < in.tasks.size(); ++t) {
    const Task& theirs = in.tasks[t];
    if (theirs.device != device) continue;
    std::vector<BufferId> reads, writes;
    for (const BufferId b : in.reads(t))
      if (b == kNone || buffer[b] != kNone || theirs.op != Op::transfer)
        reads.push_back(b == kNone ? kNone : buffer[b]);
    for (const BufferId b : in.writes(t)) writes.push_back(b == kNone ? kNone : buffer[b]);
    task[t] = g.add_task(theirs.kind, theirs.op, g.add_layer(in.layer_name(theirs.layer)),
                         g.add_attrs(in.attrs_of(theirs)), reads, writes);
    g.tasks[task[t]].micro_batch = theirs.micro_batch;
    g.tasks[task[t]].is_delayed = theirs.is_delayed;
  }
  for (const Parameter& p : in.parameters) {
    if (buffer[p.buffer] == kNone) continue;
    Parameter mine = p;
    mine.buffer = buffer[p.buffer];
    mine.copy = p.copy == kNone ? kNone : buffer[p.copy];
    for (StoredPart& part : mine.parts) part.name = g.intern(in.string(part.name));
    g.parameters.push_back(std::move(mine));
  }
  for (const Constant& c : in.constants)
    if (buffer[c.buffer] != kNone) g.constants.push_back({buffer[c.buffer], c.bytes});
  for (std::size_t i = 0; i < in.losses.size(); ++i) {
    if (buffer[in.losses[i]] == kNone) continue;
    g.losses.push_back(buffer[in.losses[i]]);
    out.losses.push_back(whole.losses[i]);
  }
  // Updates stand or fall with the losses of their step; where there are none, with one that stays zero.
  if (g.losses.empty()) g.losses.push_back(g.add_buffer("loss", {3}, DType::f32, Role::output));
  for (const Detail::Input& i : whole.inputs)
    if (buffer[i.buffer] != kNone) out.inputs.push_back({buffer[i.buffer], i.replica, i.micro_batch});
  for (const Lane& lane : whole.plan.lanes) {
    if (lane.device != device) continue;
    Lane mine{0, {}, lane.is_asynchronous};
    for (const TaskId t : lane.tasks) mine.tasks.push_back(task[t]);
    out.plan.lanes.push_back(std::move(mine));
  }
  for (const Wait& w : whole.plan.waits)
    if (task[w.before] != kNone && task[w.after] != kNone) out.plan.waits.push_back({task[w.before], task[w.after]});
  std::ranges::sort(out.plan.waits);
  out.plan.schedule = whole.plan.schedule;
  return out;
}

Plan in_one_lane(Plan plan) {
  Lane lane{0, happens_before(plan, dependencies(plan)).topological, false};
  for (Task& t : plan.graph.tasks) t.device = 0;
  for (Buffer& b : plan.graph.buffers) b.device = 0;
  plan.lanes = {std::move(lane)};
  plan.waits.clear();
  return plan;
}

}  // namespace overtake
