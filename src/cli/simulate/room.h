#pragma once
// Whether what is simulated fits into the memory of the devices. All are user errors, which name flags.

#include <vector>

#include "cli/simulate/runs.h"
#include "overtake/program.h"

namespace overtake {

// Before anything is planned. Weights and what the optimizer keeps of them must lie somewhere, whatever the schedule:
// if some device of a replica has to hold more of them than any has room for, nothing needs to be searched.
void check_floor(const Program& step, const Machine& machine);

void check_room(const SimulatedRun& run, const Machine& machine);
// Of jobs on the same machine.
void check_room_together(const std::vector<SimulatedRun>& runs, const Machine& machine);

}  // namespace overtake
