#pragma once
// Checks every task of a graph against the table of ops: how many operands it has, which of them are absent, and
// whether their shapes and element types fit. The rules are the ops' own, see OpTraits::tasks.

#include "overtake/graph.h"

namespace overtake {

// Throws an InternalError that names the task, the operand, what it is and what it should be. The graph has passed
// verify(), so that all ids are in range.
void check_tasks(const Graph& graph);

}  // namespace overtake
