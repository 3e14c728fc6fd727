#include "rewrite/uses.h"

namespace overtake {

Uses::Uses(const Graph& g) : writer(g.buffers.size(), kNone), readers(g.buffers.size(), 0) {
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    for (const BufferId b : g.reads(t))
      if (b != kNone) ++readers[b];
    for (const BufferId b : g.writes(t))
      if (b != kNone && !is_persistent(g.buffers[b].role)) writer[b] = t;
  }
}

TaskId add_like(Graph& g, const Task& like, std::span<const BufferId> reads, std::span<const BufferId> writes) {
  const TaskId id = g.add_task(like.kind, like.op, like.layer, like.attrs, reads, writes);
  g.tasks[id].micro_batch = like.micro_batch;
  g.tasks[id].device = like.device;
  return id;
}

}  // namespace overtake
