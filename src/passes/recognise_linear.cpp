// Linear layers: the bias that is added behind one, and rows that are moved to and fro around one.

#include "passes/recognise_rules.h"
#include "rewrite/move_chain.h"
#include "rewrite/pattern.h"

namespace overtake {
namespace {

bool is_vector_parameter(const Rewriter& g, BufferId b, std::int64_t elements) {
  return (g.role(b) == Role::weight || g.role(b) == Role::constant) && g.shape(b) == Shape{elements};
}

// What a view of [..., in] becomes when every row is replaced by one of another width; false where rows are not whole.
bool change_rows(StridedView& view, std::int64_t in, std::int64_t out) {
  using Axes = std::vector<StridedView::Axis>;
  Axes& row = view.dims.back();
  if (row != (in == 1 ? Axes{} : Axes{{in, 1}})) return false;
  for (Axes& dim : view.dims)
    for (StridedView::Axis& axis : dim) axis.stride = axis.stride / in * out;
  row = out == 1 ? Axes{} : Axes{{out, 1}};
  return true;
}

}  // namespace

// linear(x) + bias, perhaps with a reshape between, which then keeps the last dimension
bool add_bias_to_linear(Rewriter& g, TaskId t) {
  if (g.op(t) != Op::add) return false;
  for (const std::size_t i : {0u, 1u}) {
    MatchedTasks group{t};
    const BufferId y = g.in(t, i), bias = g.in(t, 1 - i);
    const TaskId linear = g.writer(without_reshape(g, y, group), Op::linear);
    if (linear == kNone || g.in(linear, 2) != kNone || g.attrs(linear).has("function")) continue;
    group.push_back(linear);
    const Shape &made = g.shape(g.out(linear)), &shown = g.shape(g.out(t));
    if (!is_vector_parameter(g, bias, made.back()) || shown != g.shape(y)) continue;
    if (!is_closed(g, group, t)) continue;
    Attrs attrs = g.attrs(linear);
    attrs.set("bias", std::int64_t{1});
    const BufferId x = g.in(linear, 0), weight = g.in(linear, 1);
    if (made == shown) {
      g.become(t, Op::linear, attrs, {x}, {weight, bias});
    } else {
      const std::vector<std::int64_t> dims(shown.span().begin(), shown.span().end());
      g.become(t, Op::reshape, {{"shape", dims}}, {g.insert(t, Op::linear, attrs, {x}, {weight, bias})});
    }
    return true;
  }
  return false;
}

// A linear layer treats every row alike, so rows may be moved behind it instead of before it. That is done where both
// moves together transpose nothing: [B, S, E] -> [S, B, E] -> linear -> [S, B, F] -> [B, S, F].
bool move_linear(Rewriter& g, TaskId t) {
  const std::vector<TaskId> after = chain_to(g, t);
  if (after.empty()) return false;
  const TaskId linear = g.writer(g.in(after.back(), 0), Op::linear);
  if (linear == kNone || g.attrs(linear).has("function")) return false;
  const std::vector<TaskId> before = chain_to(g, g.writer(g.in(linear, 0)));
  if (before.empty()) return false;
  for (const TaskId move : after)
    if (g.readers(g.in(move, 0)) != 1) return false;

  const BufferId x = g.in(before.back(), 0);  // [..., in]
  const std::int64_t in = g.shape(g.in(linear, 0)).back(), out = g.shape(g.out(linear)).back();
  Shape made = g.shape(x);  // [..., out]
  if (made.rank == 0 || made.back() != in) return false;
  made[made.rank - 1u] = out;
  StridedView view(g.shape(x));
  for (std::size_t i = before.size(); i-- > 0;)
    if (!apply_move(g, before[i], view)) return false;
  if (!change_rows(view, in, out)) return false;
  for (std::size_t i = after.size(); i-- > 0;)
    if (!apply_move(g, after[i], view)) return false;
  if (view.joined_axes().size() > 1) return false;

  const auto moves = shortest_moves(view, made, g.shape(g.out(t)));
  if (!moves || (moves->empty() && !g.can_bypass(t))) return false;
  const BufferId y = g.insert(t, Op::linear, Attrs(g.attrs(linear)), {x}, {g.in(linear, 1), g.in(linear, 2)});
  replace_by_moves(g, t, y, *moves);
  return true;
}

}  // namespace overtake
