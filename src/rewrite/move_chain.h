#pragma once
// Chains of tasks that only move elements about, as strided views.

#include <vector>

#include "rewrite/rewriter.h"
#include "rewrite/strided_view.h"

namespace overtake {

// The reshapes and transposes that end in t, last first; none if t is another op or kNone.
std::vector<TaskId> chain_to(const Rewriter& g, TaskId t);

// What the task, a reshape, transpose or slice, makes of a view of its input. False, and nothing has changed, where
// that is no strided view.
bool apply_move(const Rewriter& g, TaskId move, StridedView& view);

// Puts these moves of `from` in t's place.
void replace_by_moves(Rewriter& g, TaskId t, BufferId from, const std::vector<Move>& moves);

}  // namespace overtake
