#include "passes/fold_transposes.h"

#include <utility>

#include "ops/matmul.h"
#include "rewrite/rewriter.h"

namespace overtake {
namespace {

using Order = std::vector<std::int64_t>;

Order inverse(const Order& order) {
  Order back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return back;
}

bool is_identity(const Order& order) {
  for (std::size_t i = 0; i < order.size(); ++i)
    if (order[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

// The transpose that makes b for one reader alone, else kNone.
TaskId transpose_to(const Rewriter& g, BufferId b) {
  return g.readers(b) == 1 && g.role(b) == Role::activation ? g.writer(b, Op::transpose) : kNone;
}

// Puts the order of a factor into attributes: as trans where the last dimension would move. False where it would move
// further than that, or where the other factor has no leading dimensions and rows and columns are not the same to both.
bool set_order(Attrs& attrs, Order order, const char* trans, const char* name) {
  const auto rank = static_cast<std::int64_t>(order.size());
  if (order[order.size() - 2] == rank - 1) {
    std::swap(order[order.size() - 2], order[order.size() - 1]);
    attrs.set(trans, std::int64_t{attrs.integer(trans, 0) == 0});
  }
  if (order.back() != rank - 1) return false;
  if (!is_identity(order)) attrs.set(name, order);
  return true;
}

class Folder {
 public:
  Folder(Rewriter& g, const Target& target) : g_(g), target_(target) {}

  void visit(TaskId t) {
    if (g_.is_gone(t)) return;
    if (g_.op(t) == Op::matmul)
      for (const std::size_t factor : {0u, 1u}) fold_factor(t, factor);
    else if (g_.op(t) == Op::transpose)
      fold_result(t);
  }

 private:
  void fold_factor(TaskId t, std::size_t factor) {
    const TaskId transpose = transpose_to(g_, g_.in(t, factor));
    if (transpose == kNone || g_.attrs(t).has(factor == 0 ? "order_a" : "order_b")) return;
    std::vector<BufferId> reads = {g_.in(t, 0), g_.in(t, 1)};
    const bool is_alone = g_.shape(reads[1]).rank == 2 && g_.shape(reads[0]).rank > 2;  // b meets all rows of a
    if (is_alone && factor == 0) return;
    Attrs attrs = g_.attrs(t);
    if (!set_order(attrs, g_.attrs(transpose).integers("order"), factor == 0 ? "trans_a" : "trans_b",
                   factor == 0 ? "order_a" : "order_b"))
      return;
    reads[factor] = g_.in(transpose, 0);
    if (is_taken(attrs, reads, g_.out(t))) g_.become(t, Op::matmul, attrs, reads);
  }

  // c of the product is what the transpose reads; dimension i of it is dimension inverse(order)[i] of what is written.
  void fold_result(TaskId transpose) {
    const BufferId c = g_.in(transpose, 0);
    const TaskId t = g_.writer(c, Op::matmul);
    if (t == kNone || g_.readers(c) != 1 || g_.role(c) != Role::activation || g_.attrs(t).has("order_c")) return;
    if (g_.shape(g_.in(t, 0)).rank != g_.shape(g_.in(t, 1)).rank) return;
    const Order order = inverse(g_.attrs(transpose).integers("order"));
    if (order.back() + 1 != std::ssize(order)) return;
    Attrs attrs = g_.attrs(t);
    attrs.set("order_c", order);
    const std::vector<BufferId> reads = {g_.in(t, 0), g_.in(t, 1)};
    if (is_taken(attrs, reads, g_.out(transpose))) g_.become(transpose, Op::matmul, attrs, reads);
  }

  bool is_taken(const Attrs& attrs, const std::vector<BufferId>& reads, BufferId c) const {
    return target_.takes_product(matmul_view(attrs, g_.shape(reads[0]), g_.shape(reads[1]), g_.shape(c)));
  }

  Rewriter& g_;
  const Target& target_;
};

}  // namespace

Graph fold_transposes(Graph graph, const Target& target) {
  Rewriter g(std::move(graph));
  Folder folder(g, target);
  const std::size_t tasks = g.graph().tasks.size();
  for (TaskId t = 0; t < tasks; ++t) folder.visit(t);
  return std::move(g).finish();
}

}  // namespace overtake
