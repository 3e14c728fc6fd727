#include "passes/fuse_elementwise.h"

#include <algorithm>

#include "ops/chain.h"
#include "ops/op.h"
#include "rewrite/pattern.h"

namespace overtake {
namespace {

bool is_elementwise(const Rewriter& g, TaskId t) {
  return g.op(t) == Op::activation || g.op(t) == Op::add || g.op(t) == Op::mul;
}

// Whether a chain that makes `result` can read b: as it is, or as a parameter that repeats, however images are laid
// out.
bool is_operand(const Rewriter& g, BufferId b, const Shape& result) {
  const Shape& shape = g.shape(b);
  if (shape == result) return true;
  if (!g.is_parameter(b) || shape.rank > result.rank) return false;
  const bool repeats = repeated(shape, result, plain_layout(result.rank).order).has_value();
  return repeats && (result.rank != 4 || repeated(shape, result, channels_last_layout().order));
}

bool can_join(const Rewriter& g, TaskId t, const Shape& result) {
  return t != kNone && is_elementwise(g, t) && g.shape(g.out(t)) == result && g.can_bypass(t) &&
         std::ranges::all_of(g.ins(t), [&](BufferId b) { return is_operand(g, b, result); });
}

struct Tree {
  MatchedTasks tasks;              // in an order in which they can run; the last one makes the result
  std::vector<BufferId> operands;  // each once
  Chain chain;
};

Tree tree_of(const Rewriter& g, MatchedTasks tasks) {
  std::ranges::sort(tasks);  // before anything is replaced, tasks stand in an order in which they can run
  Tree tree{std::move(tasks), {}, {}};
  const auto made_by = [&](BufferId b) { return std::ranges::find(tree.tasks, g.writer(b)); };
  for (const TaskId t : tree.tasks)
    for (const BufferId b : g.ins(t))
      if (made_by(b) == tree.tasks.end() && std::ranges::find(tree.operands, b) == tree.operands.end())
        tree.operands.push_back(b);
  tree.chain.operands = static_cast<std::uint32_t>(tree.operands.size());
  const auto register_of = [&](BufferId b) {
    const auto task = made_by(b);
    return task == tree.tasks.end()
               ? static_cast<std::uint32_t>(std::ranges::find(tree.operands, b) - tree.operands.begin())
               : tree.chain.operands + static_cast<std::uint32_t>(task - tree.tasks.begin());
  };
  for (const TaskId t : tree.tasks) {
    using enum ChainStep::Kind;
    ChainStep step{g.op(t) == Op::add ? add : g.op(t) == Op::mul ? mul : function, register_of(g.in(t, 0))};
    if (step.kind == function)
      step.function = g.attrs(t);
    else
      step.b = register_of(g.in(t, 1));
    tree.chain.steps.push_back(step);
  }
  tree.chain.results = {tree.chain.operands + static_cast<std::uint32_t>(tree.chain.steps.size()) - 1};
  return tree;
}

// Tensors of the result's size that tasks move, forward and backward.
struct Traffic {
  std::size_t apart = 0, together = 0;
};

Traffic traffic_of(const Rewriter& g, const Tree& tree, const ChainGradient& back) {
  const BufferId result = g.out(tree.tasks.back());
  const auto is_whole = [&](BufferId b) { return g.shape(b) == g.shape(result); };
  const auto wants = [&](BufferId b) { return is_whole(b) && g.role(b) != Role::constant && g.role(b) != Role::input; };
  Traffic traffic;
  std::vector<BufferId> read;  // by the tasks, where it has a gradient: each but the first is one to add up
  for (const TaskId t : tree.tasks) {
    const std::vector<BufferId> in = g.ins(t);
    traffic.apart += 1 + static_cast<std::size_t>(std::ranges::count_if(in, is_whole));
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!wants(in[i])) continue;
      if (g.op(t) == Op::activation) traffic.apart += 3;                                   // x or y, dy, dx
      if (g.op(t) == Op::mul) traffic.apart += is_whole(in[in.size() - 1 - i]) ? 3u : 2u;  // dy, the other, dx
      if (std::ranges::find(read, in[i]) != read.end()) traffic.apart += 3;
      read.push_back(in[i]);
    }
  }
  traffic.together = 1 + static_cast<std::size_t>(std::ranges::count_if(tree.operands, is_whole));
  if (back.chain.results.empty()) return traffic;
  traffic.together += back.chain.results.size() + 1 + (back.reads_result ? 1u : 0u);
  for (const std::uint32_t i : back.operands) traffic.together += is_whole(tree.operands[i]) ? 1u : 0u;
  return traffic;
}

class ElementwiseFuser {
 public:
  explicit ElementwiseFuser(Rewriter& g) : g_(g) {}

  // The largest tree that ends in t, task by task from its end; of tasks that could come next the latest does, so that
  // whatever reads a task is there before it.
  void visit(TaskId t) {
    if (g_.is_gone(t) || !is_elementwise(g_, t)) return;
    const Shape result = g_.shape(g_.out(t));
    if (result.elements() > Chain::kMostElements) return;
    if (!std::ranges::all_of(g_.ins(t), [&](BufferId b) { return is_operand(g_, b, result); })) return;
    MatchedTasks group{t};
    std::vector<TaskId> refused;
    for (TaskId next = next_of(group, refused, result); next != kNone; next = next_of(group, refused, result)) {
      group.push_back(next);
      if (is_closed(g_, group, t) && fits(tree_of(g_, group))) continue;
      group.pop_back();
      refused.push_back(next);
    }
    if (group.size() < 2) return;
    const Tree tree = tree_of(g_, group);
    const Traffic traffic = traffic_of(g_, tree, gradient(tree));
    if (traffic.together < traffic.apart) g_.become(t, Op::chain, attrs_of(tree.chain), tree.operands);
  }

 private:
  TaskId next_of(const MatchedTasks& group, const std::vector<TaskId>& refused, const Shape& result) const {
    TaskId latest = kNone;
    for (const TaskId t : group)
      for (const BufferId b : g_.ins(t)) {
        const TaskId writer = g_.writer(b);
        const auto is_in = [&](const std::vector<TaskId>& list) {
          return std::ranges::find(list, writer) != list.end();
        };
        if (!can_join(g_, writer, result) || is_in(group) || is_in(refused)) continue;
        if (latest == kNone || writer > latest) latest = writer;
      }
    return latest;
  }

  // As if everything of the result's shape that is not constant had a gradient: no other backward is larger.
  ChainGradient gradient(const Tree& tree) const {
    std::vector<bool> wants;
    for (const BufferId b : tree.operands)
      wants.push_back(g_.shape(b) == g_.shape(g_.out(tree.tasks.back())) && g_.role(b) != Role::constant &&
                      g_.role(b) != Role::input);
    return gradient_of(tree.chain, wants);
  }

  bool fits(const Tree& tree) const {
    for (std::uint32_t i = 0; i < tree.chain.operands; ++i) {
      const BufferId b = tree.operands[i];
      const bool is_summed = g_.role(b) == Role::weight && g_.shape(b) != g_.shape(g_.out(tree.tasks.back()));
      if (is_summed && !direct_use(tree.chain, i)) return false;
    }
    const ChainGradient back = gradient(tree);
    return fits_kernels(tree.chain) && (back.chain.results.empty() || fits_kernels(back.chain));
  }

  Rewriter& g_;
};

}  // namespace

Graph fuse_elementwise(Graph graph) {
  Rewriter g(std::move(graph));
  ElementwiseFuser fuser(g);
  for (auto t = static_cast<TaskId>(g.graph().tasks.size()); t-- > 0;) fuser.visit(t);
  return std::move(g).finish();
}

}  // namespace overtake
