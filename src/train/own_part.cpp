#include "train/own_part.h"

#include <algorithm>

#include "comm/rank_groups.h"
#include "plan/divide/sync_batch_norm.h"

namespace overtake {

Detail own_part(const Detail& whole, const BackendOptions& devices) {
  if (devices.groups) return part_of(whole, static_cast<std::uint32_t>(devices.groups->world->rank()));
  Detail mine = whole;
  // Devices that are parts of a GPU have streams of their own; on CPUs one lane does it all.
  if (devices.virtual_gpus < 2) mine.plan = in_one_lane(std::move(mine.plan));
  return mine;
}

Plan forward_part(Plan plan) {
  Graph& g = plan.graph;
  std::vector<char> is_forward(g.tasks.size(), 0);
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    const Task& task = g.tasks[t];
    is_forward[t] = (task.kind == Kind::forward && task.op != Op::batch_moments) ||
                    (task.op == Op::transfer && g.attrs_of(task).integer("forward", 0) != 0);
  }
  plan.skipped.assign(g.tasks.size(), 0);
  for (Lane& lane : plan.lanes) std::erase_if(lane.tasks, [&](TaskId t) { return !is_forward[t]; });
  std::erase_if(plan.waits, [&](const Wait& w) { return !is_forward[w.before] || !is_forward[w.after]; });
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    plan.skipped[t] = !is_forward[t];
    if (!is_forward[t] || !g.attrs_of(g.tasks[t]).has("training")) continue;
    drop_moments(g, t);
    Attrs attrs = g.attrs_of(g.tasks[t]);
    attrs.set("training", std::int64_t{0});
    g.tasks[t].attrs = g.add_attrs(attrs);
  }
  plan.schedule = "forward";
  return plan;
}

}  // namespace overtake
