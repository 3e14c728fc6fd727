#pragma once
// Traces as a file for ui.perfetto.dev, chrome://tracing and `overtake report`.

#include <optional>
#include <string>
#include <vector>

#include "overtake/plan.h"
#include "report/step_time.h"

namespace overtake {

// Some steps of one plan.
struct TracedRun {
  std::string name;
  const Plan* plan = nullptr;
  std::vector<Trace> steps;  // shown one after the other
  std::string device;        // what it ran on, for people: "cpu"
  std::optional<StepTime> step_time = {};
};

// A process per run and device, in it a track per lane and a counter of live bytes. Each task carries its id, layer,
// kind, op, step, and the ids of the tasks it waits for. Tasks of a lane that overlap lie on threads of their own, and
// a flow leads from each send to its recv. What the file says beyond Chrome's format is an event of its own,
// "overtake_run": run, model, schedule, device, arena bytes, the length of each step, and the step time.
std::string perfetto_json(const std::vector<TracedRun>& runs);

}  // namespace overtake
