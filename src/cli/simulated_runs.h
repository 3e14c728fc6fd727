#pragma once
// Training steps on machines that are not there: a model's blocks, divided over devices, simulated.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "graph/live_memory.h"
#include "plan/divide/step_planner.h"
#include "report/device_time.h"

namespace overtake {

// How a step is divided, and which devices of the machine it runs on.
struct SimulatedSpec {
  ParallelOptions parallel = {.may_repeat_weights = true};
  int steps = 1;                            // simulated in a row
  std::vector<std::uint32_t> devices = {};  // none: the first
};

// As many as replicas x stages. User errors: the machine has fewer, or other ones.
std::vector<std::uint32_t> devices_of(const SimulatedSpec& spec, const Machine& machine);

struct SimulatedRun {
  std::string name;    // for tables: "zb-h1", "first-k 12"
  std::string reason;  // of a search: where its schedule came from
  PredictedStep step;
  std::vector<DeviceTime> times = {};  // per device of the step
  struct Peak {
    std::int64_t bytes = 0;
    std::array<std::int64_t, kMemoryGroups.size()> groups{};  // at that moment
  };
  std::vector<Peak> peaks = {};  // per device of the step

  double step_ms() const { return step.step_ms(); }
  const Plan& plan() const { return step.outline.plan; }
  const Trace& trace() const { return step.result.trace; }
  const Peak& largest_peak() const;
  // Of the run's devices, the first that has no room for it.
  std::optional<std::size_t> too_small(const Machine& machine) const;
  bool fits(const Machine& machine) const { return !too_small(machine); }
};

// User errors: more devices than there are, a schedule that cannot be.
SimulatedRun simulate_run(const Workload& work, const SimulatedSpec& spec, const Machine& machine);

}  // namespace overtake
