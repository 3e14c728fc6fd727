#include "plan/divide/micro_batch_sums.h"

#include "base/error.h"
#include "passes/weights.h"
#include "plan/divide/gradient_sum.h"
#include "rewrite/uses.h"

namespace overtake {
namespace {

struct Gradient {
  BufferId buffer;
  TaskId writer;
  bool is_added_by_writer;
};

std::vector<Gradient> trained_gradients(const Graph& step, const Target& target) {
  const std::vector<TaskId> writers = Uses(step).writer;
  std::vector<Gradient> all;
  for (const Parameter& p : step.parameters)
    if (const BufferId b = p.gradient; b != kNone && writers[b] != kNone)
      all.push_back({b, writers[b], gradient_sum(step, b, writers[b], &target).is_added_by_writer});
  return all;
}

// The task that makes a gradient once more, with results of its own, adding what is there of the sum.
void add_product(Graph& out, const Graph& step, TaskId writer, BufferId before, BufferId sum, const Target& target) {
  std::vector<BufferId> reads(step.reads(writer).begin(), step.reads(writer).end()), writes;
  if (before != kNone) reads.push_back(before);
  for (const BufferId b : step.writes(writer)) {
    if (writes.empty() || b == kNone) {
      writes.push_back(writes.empty() ? sum : kNone);
    } else if (step.buffers[b].role != Role::scratch) {
      out.buffers.push_back(Buffer(step.buffers[b]));
      writes.push_back(static_cast<BufferId>(out.buffers.size() - 1));
    }
  }
  const Task& like = step.tasks[writer];
  add_scratch(out, out.add_task(like.kind, like.op, like.layer, like.attrs, reads, writes), target);
}

}  // namespace

Graph with_micro_batch_sums(const Graph& step, const Target& target) {
  Graph out = step;
  const AttrsId none = out.add_attrs({});
  const std::vector<Gradient> gradients = trained_gradients(step, target);
  // Twice all of them: what the second time adds to is not zero, is no gradient, and has long left the caches.
  std::vector<BufferId> before;
  for (const Gradient& g : gradients) before.push_back(g.is_added_by_writer ? kNone : g.buffer);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      Buffer sum = out.buffers[gradients[i].buffer];
      sum.dtype = DType::f32;
      sum.name = out.intern(fmt::format("{}.sum{}", step.buffer_name(gradients[i].buffer), round));
      out.buffers.push_back(sum);
      const auto written = static_cast<BufferId>(out.buffers.size() - 1);
      if (gradients[i].is_added_by_writer)
        add_product(out, step, gradients[i].writer, before[i], written, target);
      else
        out.add_task(Kind::weight_grad, Op::sum, out.tasks[gradients[i].writer].layer, none,
                     {before[i], gradients[i].buffer}, {written});
      before[i] = written;
    }
  }
  return out;
}

std::vector<std::int64_t> with_sums_counted(const Graph& step, const std::vector<std::int64_t>& ns,
                                            std::uint32_t micro_batches, const Target& target) {
  const std::vector<Gradient> gradients = trained_gradients(step, target);
  const std::size_t tasks = step.tasks.size();
  const std::size_t second = tasks + gradients.size();
  OVERTAKE_CHECK(ns.size() == second + gradients.size(), "{} times of {} tasks and twice {} sums", ns.size(), tasks,
                 gradients.size());
  std::vector<std::int64_t> counted(ns.begin(), ns.begin() + static_cast<std::ptrdiff_t>(tasks));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Gradient& g = gradients[i];
    const std::int64_t more = ns[second + i] - (g.is_added_by_writer ? ns[g.writer] : 0);
    counted[g.writer] += more * (micro_batches - 1) / micro_batches;
  }
  return counted;
}

}  // namespace overtake
