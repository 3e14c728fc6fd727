#pragma once
// What one process does of a step over several devices.

#include "exec/backend.h"
#include "plan/divide/detail.h"

namespace overtake {

// The part of this process's rank; without ranks all of the step, on one lane unless the devices are parts of a GPU.
Detail own_part(const Detail& whole, const BackendOptions& devices);

// Forward alone, of every micro-batch, with the transfers it needs: for evaluation. See schedule_forward.
Plan forward_part(Plan plan);

}  // namespace overtake
