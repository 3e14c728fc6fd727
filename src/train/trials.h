#pragma once
// The choices of a program tried out: a few real steps of each, with weights and inputs of their own that go
// afterwards.

#include "overtake/program.h"
#include "train/workplace.h"

namespace overtake {

// Notes what each choice takes, and takes the fastest. All ranks call it at once and come to the same choice. Nothing
// is tried where there is one choice, or where nothing can be: GPUs of several ranks are not connected yet.
void try_choices(Program& program, const Workplace& place);

}  // namespace overtake
