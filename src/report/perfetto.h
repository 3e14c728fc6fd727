#pragma once
// Traces as a file for ui.perfetto.dev and chrome://tracing.

#include <string>
#include <vector>

#include "graph/plan.h"

namespace overtake {

// One run of steps of one plan, shown as a process with a track per lane.
struct TracedRun {
  std::string name;
  const Plan* plan = nullptr;
  std::vector<Trace> steps;  // shown one after the other
};

std::string perfetto_json(const std::vector<TracedRun>& runs);

}  // namespace overtake
