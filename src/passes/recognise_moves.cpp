// Reshapes, transposes and slices: chains of them become the shortest that does the same.

#include "passes/recognise_rules.h"
#include "rewrite/move_chain.h"

namespace overtake {
namespace {

// Tries to shorten the last `length` tasks of a chain.
bool shorten(Rewriter& g, const std::vector<TaskId>& chain, std::size_t length) {
  const TaskId last = chain[0];
  const BufferId from = g.in(chain[length - 1], 0);
  StridedView view(g.shape(from));
  for (std::size_t i = length; i-- > 0;)
    if (!apply_move(g, chain[i], view)) return false;
  const auto moves = shortest_moves(view, g.shape(from), g.shape(g.out(last)));
  if (!moves || (moves->empty() && !g.can_bypass(last))) return false;
  // Tasks that go: those that only this chain reads.
  std::size_t going = 1;
  while (going < length && g.readers(g.out(chain[going])) == 1) ++going;
  // A transpose that moves nothing but dimensions of extent 1 is better a reshape, which copies nothing.
  const bool becomes_view = length == 1 && moves->size() == 1 && g.op(last) != moves->front().op;
  if (!becomes_view && (moves->size() >= length || moves->size() > going)) return false;
  replace_by_moves(g, last, from, *moves);
  return true;
}

bool drop_whole_slice(Rewriter& g, TaskId t) {
  if (g.shape(g.in(t, 0)) != g.shape(g.out(t)) || !g.can_bypass(t)) return false;
  g.bypass(t, g.in(t, 0));
  return true;
}

}  // namespace

bool simplify_moves(Rewriter& g, TaskId t) {
  if (g.op(t) == Op::slice) return drop_whole_slice(g, t);
  const std::vector<TaskId> chain = chain_to(g, t);
  for (std::size_t length = chain.size(); length > 0; --length)
    if (shorten(g, chain, length)) return true;
  return false;
}

}  // namespace overtake
