#include "passes/fuse_gradients.h"

#include <vector>

#include "rewrite/uses.h"

namespace overtake {
namespace {

class GradientFuser {
 public:
  GradientFuser(const Graph& old, Graph& g, const Target& target)
      : old_(old), graph_(g), target_(target), uses_(old), absorbed_(old.tasks.size(), kNone) {
    for (const Parameter& p : old.parameters)
      if (p.gradient != kNone) ++uses_.readers[p.gradient];
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
    const TaskId t = b == kNone ? kNone : uses_.writer[b];
    const bool fits =
        t != kNone && old_.tasks[t].op == op && uses_.readers[b] == 1 && old_.buffers[b].role == Role::gradient;
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
      if (sum != kNone && old_.tasks[sum].reads == 2 && absorbed_[sum] == kNone) absorbed_[t] = sum;
    } else if (task.op == Op::sum && task.kind == Kind::input_grad && task.reads == 2 &&
               target_.fuses_gradient_sums()) {
      for (const BufferId b : old_.reads(t)) {
        const TaskId norm = producer(b, Op::batch_norm);
        if (norm != kNone && old_.tasks[norm].kind == Kind::input_grad && old_.tasks[norm].reads == 8)
          absorbed_[t] = norm;
      }
    }
  }

  void place(TaskId t) {
    const Task& task = old_.tasks[t];
    const TaskId inner = absorbed_[t];
    std::vector<BufferId> reads(old_.reads(t).begin(), old_.reads(t).end());
    Task placed = task;
    if (inner != kNone && task.op == Op::sum) {
      placed = old_.tasks[inner];
      const BufferId own = old_.writes(inner)[0], other = reads[reads[0] == own ? 1 : 0];
      reads.assign(old_.reads(inner).begin(), old_.reads(inner).end());
      reads.push_back(other);
    } else if (inner != kNone && task.op == Op::batch_norm) {
      reads[1] = old_.reads(inner)[0];
      reads.push_back(old_.reads(inner)[1]);
    } else if (inner != kNone) {
      placed = old_.tasks[inner];
      Attrs attrs = old_.attrs_of(placed);
      attrs.set("derivative", old_.attrs_of(task).text("function"));
      placed.attrs = graph_.add_attrs(attrs);
      const BufferId pre = reads[0];
      reads.assign(old_.reads(inner).begin(), old_.reads(inner).end());
      reads.push_back(pre);
    }
    add_like(graph_, placed, reads, old_.writes(t));
  }

  const Graph& old_;
  Graph& graph_;
  const Target& target_;
  Uses uses_;
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
