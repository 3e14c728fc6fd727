#pragma once
// A step over several devices as it was simulated.

#include <cstdint>

#include "graph/plan.h"

namespace overtake {

struct PredictedStep {
  Plan plan;    // of blocks, with what the place it runs at adds to it
  Trace trace;  // of a step among others
  std::int64_t step_ns() const { return trace.step_ns; }
};

}  // namespace overtake
