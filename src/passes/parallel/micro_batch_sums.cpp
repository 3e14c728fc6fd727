#include "passes/parallel/micro_batch_sums.h"

#include "base/error.h"

namespace overtake {
namespace {

struct Gradient {
  BufferId buffer;
  TaskId writer;
};

std::vector<Gradient> trained_gradients(const Graph& step) {
  std::vector<TaskId> writers(step.buffers.size(), kNone);
  for (TaskId t = 0; t < step.tasks.size(); ++t)
    for (const BufferId b : step.writes(t))
      if (b != kNone) writers[b] = t;
  std::vector<Gradient> all;
  for (const Parameter& p : step.parameters)
    if (p.gradient != kNone && writers[p.gradient] != kNone) all.push_back({p.gradient, writers[p.gradient]});
  return all;
}

}  // namespace

Graph with_micro_batch_sums(const Graph& step) {
  Graph out = step;
  const AttrsId none = out.add_attrs({});
  const std::vector<Gradient> gradients = trained_gradients(step);
  // Twice all of them: what the second time adds to is not zero, is no gradient, and has long left the caches.
  std::vector<BufferId> before;
  for (const Gradient& g : gradients) before.push_back(g.buffer);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      Buffer sum = out.buffers[gradients[i].buffer];
      sum.name = out.intern(fmt::format("{}.sum{}", step.buffer_name(gradients[i].buffer), round));
      out.buffers.push_back(sum);
      const auto written = static_cast<BufferId>(out.buffers.size() - 1);
      out.add_task(Kind::weight_grad, Op::sum, out.tasks[gradients[i].writer].layer, none,
                   {before[i], gradients[i].buffer}, {written});
      before[i] = written;
    }
  }
  return out;
}

std::vector<std::int64_t> with_sums_counted(const Graph& step, std::vector<std::int64_t> ns,
                                            std::uint32_t micro_batches) {
  const std::vector<Gradient> gradients = trained_gradients(step);
  const std::size_t tasks = step.tasks.size();
  const std::size_t second = tasks + gradients.size();
  OVERTAKE_CHECK(ns.size() == second + gradients.size(), "{} times of {} tasks and twice {} sums", ns.size(), tasks,
                 gradients.size());
  for (std::size_t i = 0; i < gradients.size(); ++i)
    ns[gradients[i].writer] += ns[second + i] * (micro_batches - 1) / micro_batches;
  ns.resize(tasks);
  return ns;
}

}  // namespace overtake
