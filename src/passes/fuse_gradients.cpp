#include "passes/fuse_gradients.h"

#include <vector>

namespace overtake {
namespace {

class GradientFuser {
 public:
  GradientFuser(const Graph& old, Graph& g, const Target& target)
      : old_(old), graph_(g), target_(target), writer_(old.buffers.size(), kNone), readers_(old.buffers.size(), 0) {
    for (TaskId t = 0; t < old.tasks.size(); ++t) {
      for (const BufferId b : old.reads(t))
        if (b != kNone) ++readers_[b];
      for (const BufferId b : old.writes(t))
        if (b != kNone && !is_persistent(old.buffers[b].role)) writer_[b] = t;
    }
    for (const Parameter& p : old.parameters)
      if (p.gradient != kNone) ++readers_[p.gradient];
    absorbed_.assign(old.tasks.size(), kNone);
  }

  void run() {
    for (TaskId t = 0; t < old_.tasks.size(); ++t) find(t);
    std::vector<char> is_gone(old_.tasks.size(), 0);
    for (const TaskId t : absorbed_)
      if (t != kNone) is_gone[t] = 1;
    for (TaskId t = 0; t < old_.tasks.size(); ++t)
      if (!is_gone[t]) place(t);
  }

 private:
  // The task that makes b for one reader alone.
  TaskId producer(BufferId b, Op op) const {
    const TaskId t = b == kNone ? kNone : writer_[b];
    const bool fits =
        t != kNone && old_.tasks[t].op == op && readers_[b] == 1 && old_.buffers[b].role == Role::gradient;
    return fits ? t : kNone;
  }

  void find(TaskId t) {
    const Task& task = old_.tasks[t];
    if (task.op == Op::activation && task.kind == Kind::input_grad) {
      if (!target_.fuses_derivative(old_.attrs_of(task).text("function"))) return;
      const TaskId linear = producer(old_.reads(t)[2], Op::linear);
      if (linear != kNone && old_.tasks[linear].kind == Kind::input_grad && old_.tasks[linear].reads == 2)
        absorbed_[t] = linear;
    } else if (task.op == Op::batch_norm && task.kind == Kind::weight_grad) {
      const bool writes_dz = old_.writes(t)[2] != kNone;
      const TaskId sum = writes_dz && target_.fuses_gradient_sums() ? producer(old_.reads(t)[1], Op::sum) : kNone;
      if (sum != kNone && old_.tasks[sum].reads == 2) absorbed_[t] = sum;
    }
  }

  void place(TaskId t) {
    const Task& task = old_.tasks[t];
    const TaskId inner = absorbed_[t];
    std::vector<BufferId> reads(old_.reads(t).begin(), old_.reads(t).end());
    if (inner == kNone) {
      copy(task, task.op, task.layer, task.attrs, reads, old_.writes(t));
    } else if (task.op == Op::batch_norm) {
      reads[1] = old_.reads(inner)[0];
      reads.push_back(old_.reads(inner)[1]);
      copy(task, task.op, task.layer, task.attrs, reads, old_.writes(t));
    } else {
      const Task& linear = old_.tasks[inner];
      Attrs attrs = old_.attrs_of(linear);
      attrs.set("derivative", old_.attrs_of(task).text("function"));
      const BufferId pre = reads[0];
      reads.assign(old_.reads(inner).begin(), old_.reads(inner).end());
      reads.push_back(pre);
      copy(linear, linear.op, linear.layer, graph_.add_attrs(attrs), reads, old_.writes(t));
    }
  }

  void copy(const Task& like, Op op, LayerId layer, AttrsId attrs, const std::vector<BufferId>& reads,
            std::span<const BufferId> writes) {
    const TaskId id = graph_.add_task(like.kind, op, layer, attrs, reads, writes);
    graph_.tasks[id].micro_batch = like.micro_batch;
    graph_.tasks[id].device = like.device;
  }

  const Graph& old_;
  Graph& graph_;
  const Target& target_;
  std::vector<TaskId> writer_;
  std::vector<std::uint32_t> readers_;
  std::vector<TaskId> absorbed_;  // by task: the one it takes in
};

}  // namespace

Graph fuse_gradients(Graph graph, const Target& target) {
  const Graph old = graph;
  graph.tasks.clear();
  graph.operands.clear();
  GradientFuser(old, graph, target).run();
  return graph;
}

}  // namespace overtake
