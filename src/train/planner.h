#pragma once
// A run planned where it is to run: the machine is measured, or taken as described, the program is compiled for it, and
// its best choices are tried out.

#include <string>
#include <vector>

#include "plan/compile.h"
#include "train/workplace.h"

namespace overtake {

struct PlannedRun {
  Program program;
  std::vector<PassRecord> passes;
};

// `model` is the forward graph of one micro-batch. All ranks of a job call it at once and get the same program.
PlannedRun plan_run(Graph model, const RunSpec& spec, const Workplace& place, const CompileOptions& options = {});

// A program from a file, with what the kernels of its machine want. A user error, which begins with `where`, if it is
// no plan, or does not hold together.
Program read_program(const std::string& path, const std::string& where);

// A program from a file, for this place. User errors: the file is no plan, or the devices here cannot run it.
Program load_program(const std::string& path, const Workplace& place);

// A program for this place, whose kernels it then knows. `where` begins user errors: the devices here want another
// step, or are too few.
Program fit_to_place(Program program, const Workplace& place, const std::string& where);

// The machine that a spec names, with what it says of collectives and memory there; its devices' kernels are known.
// `steps` is how many a prediction simulates in a row; 0: as the program asks for.
Machine machine_of(const RunSpec& spec, int steps);
Machine machine_of(const RunSpec& spec, Cluster cluster, int steps = 0);

}  // namespace overtake
