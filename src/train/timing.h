#pragma once
// How long steps take when they follow one another as they do in training.

#include <vector>

#include "exec/executor.h"

namespace overtake {

// Milliseconds of each of so many steps of a program, back to back, as many under way as the device takes. The first
// few are left out: they start on an idle device, or without what a step before them delayed.
std::vector<double> time_steps(Executor& executor, std::size_t program, int steps, StepArgs args);

// How many steps of so many milliseconds to time so that they last for `ms` together: one interruption changes a few
// short ones a lot.
int steps_lasting(double ms, double step_ms, int least, int most);

}  // namespace overtake
