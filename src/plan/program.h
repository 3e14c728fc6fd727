#pragma once
// What passes over programs and the ranks of a job ask of a program, beside what overtake/program.h gives everybody.

#include <string>
#include <string_view>

#include "graph/fingerprint.h"
#include "overtake/program.h"

namespace overtake {

// What passes over programs are asked for.
inline const Graph& graph_of(const Program& program) { return program.step; }
Fingerprint fingerprint(const Program& program);

// What was decided of a program that another process compiled from the same step: all of its choices, and the costs.
std::string save_choices(const Program& program);
void take_choices(Program& program, std::string_view text);

}  // namespace overtake
