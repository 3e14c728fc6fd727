#pragma once
// An order of a step's tasks that a user made.

#include <functional>

#include "overtake/program.h"

namespace overtake {

// The program with that order as its only choice; see CompileOptions::own_order.
Program take_own_order(Program program, const std::function<Plan(const Graph& step)>& own_order);

}  // namespace overtake
