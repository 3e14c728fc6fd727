#pragma once
// Simulated steps with the figures that tables show of them.

#include <optional>
#include <string>
#include <vector>

#include "plan/simulated_step.h"
#include "report/device_memory.h"
#include "report/device_time.h"
#include "report/perfetto.h"

namespace overtake {

struct SimulatedRun : SimulatedStep {
  explicit SimulatedRun(SimulatedStep simulated);

  std::vector<DeviceTime> times;  // per device of the step
  std::vector<MemoryPeak> peaks;  // per device of the step

  double step_ms() const { return step.step_ms(); }
  const Plan& plan() const { return step.outline.plan; }
  const Trace& trace() const { return step.result.trace; }
  // For a file, with the step time that is printed.
  TracedRun traced(const std::string& device) const;
  const MemoryPeak& largest_peak() const;
  // Of the run's devices, the first that has no room for it.
  std::optional<std::size_t> too_small(const Machine& machine) const;
  bool fits(const Machine& machine) const { return !too_small(machine); }
};

}  // namespace overtake
