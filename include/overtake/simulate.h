#pragma once
// simulate: what a step of a program takes on the machine that it was compiled for, without running it.

#include <cstdint>
#include <string>
#include <vector>

#include "overtake/plan.h"
#include "overtake/program.h"

namespace overtake {

struct Simulation {
  std::string name;  // of what was simulated, for tables: "zb-h1", "search + first-k 12"
  // Of one device the step task by task, on all its lanes, with its memory; of several block by block, with their
  // transfers.
  Plan plan;
  // When each task of the plan ran, in one step amid others. Its step_ns is the time of a step.
  Trace trace;
  std::vector<std::int64_t> peak_bytes;  // by device of the plan: the most memory it needs at one moment

  double step_ms() const { return static_cast<double>(trace.step_ns) * 1e-6; }
};

// As the program's choice has it, with the program's costs. User errors: they are not known, or the step never ends.
Simulation simulate(const Program& program);

}  // namespace overtake
