#pragma once
// A planned step simulated on the machine it is planned for.

#include <string>

#include "overtake/program.h"
#include "plan/divide/workload.h"
#include "plan/prediction.h"

namespace overtake {

struct SimulatedStep {
  std::string name;    // for tables: "zb-h1", "search + first-k 12"
  std::string reason;  // of a search: where its schedule came from
  PredictedStep step;
};

// As the program's choice has it. Of one device task by task, on all its lanes; otherwise block by block.
SimulatedStep simulated_step(const Program& program);

// Of blocks that stand for no model's tasks, divided as the spec says.
SimulatedStep simulated_step(const Workload& work, const RunSpec& spec, const Machine& machine);

}  // namespace overtake
