#pragma once
// The choices of a program tried out: a few real steps of each, with weights and inputs of their own that go
// afterwards.

#include "overtake/program.h"
#include "train/workplace.h"

namespace overtake {

// Notes what each choice takes, and takes the fastest. All ranks call it at once and come to the same choice. Nothing
// is tried where there is one choice, or where nothing can be: GPUs of several ranks are not connected yet. Where the
// time for planning allows less than all, the most promising ones are tried; of one device that may be in order, none
// is taken untried.
void try_choices(Program& program, const Workplace& place);

// How much of a trial of one device there is time for.
struct TrialSize {
  std::size_t choices = 0;  // with the one in order; none: no trial
  int rounds = 0, steps = 0;
};
TrialSize affordable_trial(TrialSize wanted, double step_s, const PlanningTime& time);

}  // namespace overtake
