#include "passes/recognise.h"

#include <algorithm>

#include "passes/recognise_rules.h"
#include "rewrite/rewriter.h"

namespace overtake {
namespace {

using Rule = bool (*)(Rewriter&, TaskId);

// Where two rules could take the same task the earlier one does.
constexpr Rule kRules[] = {
    simplify_moves,        // first: the patterns below then meet few forms of the same thing
    add_bias_to_linear,    // before a linear's place changes
    move_linear,           //
    recognise_activation,  //
    recognise_layer_norm,  // makes norms without a scale of their own,
    recognise_group_norm,  //   turns some into group norms,
    scale_norm,            //   and gives them theirs
    recognise_attention,
};

// A group is seen from its last task, so going forward once finds what earlier groups make possible. New tasks are
// visited in their turn.
void visit(Rewriter& g, TaskId t) {
  while (!g.is_gone(t) && std::ranges::any_of(kRules, [&](Rule rule) { return rule(g, t); }))
    for (const TaskId added : g.take_inserted()) visit(g, added);
}

}  // namespace

Graph recognise(Graph graph) {
  for (bool again = true; again;) {
    Rewriter g(std::move(graph));
    const std::size_t tasks = g.graph().tasks.size();
    for (TaskId t = 0; t < tasks; ++t) visit(g, t);
    again = g.has_changed();
    graph = std::move(g).finish();
  }
  return graph;
}

}  // namespace overtake
