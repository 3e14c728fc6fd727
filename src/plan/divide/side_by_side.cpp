#include "plan/divide/side_by_side.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"

namespace overtake {
namespace {

// Appends copies of the first tasks of a step to a graph that begins with the step itself.
class Copier {
 public:
  Copier(const Graph& step, Graph& out) : step_(step), out_(out) {}

  // Of so many tasks; the ids of their copies.
  std::vector<TaskId> copy(std::size_t tasks, std::uint32_t device) {
    device_ = static_cast<std::uint16_t>(device);
    copy_of_.assign(step_.buffers.size(), kNone);
    std::vector<TaskId> made;
    for (TaskId t = 0; t < tasks; ++t) made.push_back(task(t));
    add_parameters();
    for (const Constant& c : step_.constants)
      if (copy_of_[c.buffer] != kNone) out_.constants.push_back({copy_of_[c.buffer], c.bytes});
    for (const BufferId b : step_.losses)
      if (copy_of_[b] != kNone) out_.losses.push_back(copy_of_[b]);
    return made;
  }

 private:
  BufferId buffer(BufferId b) {
    if (b == kNone || copy_of_[b] != kNone) return b == kNone ? kNone : copy_of_[b];
    Buffer mine = step_.buffers[b];
    mine.device = device_;
    mine.inside.buffer = buffer(mine.inside.buffer);
    out_.buffers.push_back(mine);
    return copy_of_[b] = static_cast<BufferId>(out_.buffers.size() - 1);
  }

  TaskId task(TaskId t) {
    std::vector<BufferId> reads, writes;
    for (const BufferId b : step_.reads(t)) reads.push_back(buffer(b));
    for (const BufferId b : step_.writes(t)) writes.push_back(buffer(b));
    const Task& like = step_.tasks[t];
    const TaskId made = out_.add_task(like.kind, like.op, like.layer, like.attrs, reads, writes);
    out_.tasks[made].device = device_;
    out_.tasks[made].micro_batch = like.micro_batch;
    out_.tasks[made].is_delayed = like.is_delayed;
    return made;
  }

  // A weight starts with its copy, so there are both where there is one.
  void add_parameters() {
    for (const Parameter& p : step_.parameters) {
      if (copy_of_[p.buffer] == kNone && (p.copy == kNone || copy_of_[p.copy] == kNone)) continue;
      Parameter mine = p;
      mine.buffer = buffer(p.buffer);
      mine.copy = buffer(p.copy);
      mine.gradient = p.gradient == kNone ? kNone : copy_of_[p.gradient];
      out_.parameters.push_back(std::move(mine));
    }
  }

  const Graph& step_;
  Graph& out_;
  std::uint16_t device_ = 0;
  std::vector<BufferId> copy_of_;  // per buffer of the step
};

}  // namespace

// Of N devices, number d does (N - 1 - d) / N of a step, a whole one, and d / N of one. So all have as much to do; and
// from when the first begins its whole step to its end, number d is d / N of a step ahead of it: at first in its whole
// one, then in what follows.
Plan side_by_side(const Graph& step, std::uint32_t devices) {
  OVERTAKE_CHECK(devices > 0, "a step of {} on no device", step.model);
  Plan plan;
  plan.graph = step;
  plan.schedule = "side-by-side";
  Copier copier(step, plan.graph);
  const std::size_t all = step.tasks.size();
  for (std::uint32_t d = 0; d < devices; ++d) {
    Lane lane{static_cast<std::uint16_t>(d), copier.copy(all * (devices - 1 - d) / devices, d), false};
    std::vector<TaskId> whole(all);
    std::iota(whole.begin(), whole.end(), TaskId{0});
    if (d > 0) whole = copier.copy(all, d);
    lane.tasks.insert(lane.tasks.end(), whole.begin(), whole.end());
    const std::vector<TaskId> after = copier.copy(all * d / devices, d);
    lane.tasks.insert(lane.tasks.end(), after.begin(), after.end());
    plan.lanes.push_back(std::move(lane));
  }
  return plan;
}

}  // namespace overtake
