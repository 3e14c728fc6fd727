#include "rewrite/move_chain.h"

#include "base/error.h"

namespace overtake {

constexpr std::size_t kLongestChain = 8;  // so that looking back stays cheap

std::vector<TaskId> chain_to(const Rewriter& g, TaskId t) {
  std::vector<TaskId> chain;
  while (t != kNone && (g.op(t) == Op::reshape || g.op(t) == Op::transpose) && chain.size() < kLongestChain) {
    chain.push_back(t);
    t = g.writer(g.in(t, 0));
  }
  return chain;
}

bool apply_move(const Rewriter& g, TaskId move, StridedView& view) {
  const Attrs& attrs = g.attrs(move);
  switch (g.op(move)) {
    case Op::reshape:
      return view.reshape(g.shape(g.out(move)));
    case Op::transpose:
      view.transpose(attrs.integers("order"));
      return true;
    case Op::slice:
      return view.slice(static_cast<std::size_t>(attrs.integer("axis")), attrs.integer("begin"), attrs.integer("end"));
    default:
      OVERTAKE_CHECK(false, "op {} does not only move elements", to_string(g.op(move)));
  }
}

void replace_by_moves(Rewriter& g, TaskId t, BufferId from, const std::vector<Move>& moves) {
  const auto attrs_of = [](const Move& m) { return Attrs{{m.op == Op::reshape ? "shape" : "order", m.numbers}}; };
  if (moves.empty()) return g.bypass(t, from);
  for (std::size_t i = 0; i + 1 < moves.size(); ++i) from = g.insert(t, moves[i].op, attrs_of(moves[i]), {from});
  g.become(t, moves.back().op, attrs_of(moves.back()), {from});
}

}  // namespace overtake
