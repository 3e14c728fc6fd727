#include "passes/fuse.h"

#include <algorithm>

#include "base/error.h"
#include "ops/op.h"
#include "rewrite/uses.h"

namespace overtake {
namespace {

class Fuser {
 public:
  Fuser(const Graph& old, Graph& g, const FusedFunctions& functions)
      : old_(old), graph_(g), functions_(functions), uses_(old) {
    absorbed_.assign(old.tasks.size(), 0);
    fused_.assign(old.tasks.size(), {});
  }

  void run() {
    for (TaskId t = 0; t < old_.tasks.size(); ++t) find(t);
    for (TaskId t = 0; t < old_.tasks.size(); ++t)
      if (!absorbed_[t]) place(t);
  }

 private:
  // What stands at a task's place after fusion; op is that of `root`.
  struct Fused {
    TaskId root = kNone;
    BufferId residual = kNone;
    std::string function = "none";
  };

  // The task that writes b, if it is of this op, nobody but one reader sees b, and it is still free.
  TaskId producer(BufferId b, Op op) const {
    const TaskId t = b == kNone ? kNone : uses_.writer[b];
    const bool fits = t != kNone && old_.tasks[t].op == op && uses_.readers[b] == 1 && !absorbed_[t] &&
                      fused_[t].root == kNone && old_.buffers[b].role == Role::activation;
    return fits ? t : kNone;
  }

  void find(TaskId t) {
    const Task& task = old_.tasks[t];
    if (task.op == Op::add) {
      find_residual(t, t, "none");
    } else if (task.op == Op::activation) {
      const std::string& function = old_.attrs_of(task).text("function");
      const BufferId x = old_.reads(t)[0];
      if (functions_.batch_norm(function))
        if (const TaskId norm = producer(x, Op::batch_norm); norm != kNone) return join(t, {norm, kNone, function});
      if (function == "relu") {
        const TaskId add = x == kNone ? kNone : uses_.writer[x];
        // An add that was joined with its norm already takes the function too.
        if (add != kNone && fused_[add].root != kNone && old_.tasks[add].op == Op::add && uses_.readers[x] == 1) {
          const Fused inner = fused_[add];
          fused_[add] = {};
          absorbed_[add] = 1;
          fused_[t] = {inner.root, inner.residual, function};
          return;
        }
      }
      if (!linear_takes(function) || !functions_.linear(function)) return;
      const TaskId linear = producer(x, Op::linear);
      if (linear != kNone && !old_.attrs_of(old_.tasks[linear]).has("function")) join(t, {linear, kNone, function});
    } else if (task.op == Op::layer_norm) {
      find_sum(t);
    }
  }

  // y = norm(x) + residual: of two norms the later one takes the add, so that its sum is there in time.
  void find_residual(TaskId add, TaskId at, const std::string& function) {
    const BufferId a = old_.reads(add)[0], b = old_.reads(add)[1];
    if (old_.buffers[a].shape != old_.buffers[b].shape || a == b) return;
    TaskId norm_a = producer(a, Op::batch_norm), norm_b = producer(b, Op::batch_norm);
    if (norm_a != kNone && norm_b != kNone) (norm_a > norm_b ? norm_b : norm_a) = kNone;
    const TaskId norm = norm_a != kNone ? norm_a : norm_b;
    if (norm != kNone) join(at, {norm, norm == norm_a ? b : a, function});
  }

  // norm(a + b), where the sum may have other readers: the norm moves up to the add.
  void find_sum(TaskId norm) {
    const BufferId x = old_.reads(norm)[0];
    const TaskId add = uses_.writer[x];
    if (add == kNone || old_.tasks[add].op != Op::add || absorbed_[add] || fused_[add].root != kNone) return;
    const BufferId a = old_.reads(add)[0], b = old_.reads(add)[1];
    if (old_.buffers[a].shape != old_.buffers[b].shape || a == b || old_.buffers[x].role != Role::activation) return;
    join(add, {norm, b, "none"});
  }

  void join(TaskId at, const Fused& fused) {
    absorbed_[fused.root] = 1;
    fused_[at] = fused;
  }

  void place(TaskId t) {
    const Fused& fused = fused_[t];
    const TaskId root_id = fused.root == kNone ? t : fused.root;
    Task root = old_.tasks[root_id];
    std::vector<BufferId> reads(old_.reads(root_id).begin(), old_.reads(root_id).end());
    std::vector<BufferId> writes(old_.writes(root_id).begin(), old_.writes(root_id).end());
    if (fused.root != kNone && root.op == Op::layer_norm) {
      writes.push_back(reads[0]);
      reads[0] = old_.reads(t)[0];
      reads.push_back(fused.residual);
    } else if (fused.root != kNone) {
      Attrs joined = old_.attrs_of(root);
      joined.set("function", fused.function);
      root.attrs = graph_.add_attrs(joined);
      const BufferId y = old_.writes(t)[0];
      if (root.op == Op::batch_norm)
        reads[1] = fused.residual;
      else if (!derivative_uses_output(fused.function))
        writes.push_back(writes[0]);  // what the linear itself made stays, as what the derivative needs
      writes[0] = y;
    }
    add_like(graph_, root, reads, writes);
  }

  const Graph& old_;
  Graph& graph_;
  const FusedFunctions& functions_;
  Uses uses_;
  std::vector<char> absorbed_;
  std::vector<Fused> fused_;
};

}  // namespace

Graph fuse(Graph graph, const FusedFunctions& functions) {
  const Graph old = graph;
  graph.tasks.clear();
  graph.operands.clear();
  Fuser(old, graph, functions).run();
  return graph;
}

}  // namespace overtake
