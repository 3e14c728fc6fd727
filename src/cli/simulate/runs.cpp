#include "cli/simulate/runs.h"

#include <algorithm>

namespace overtake {

SimulatedRun::SimulatedRun(SimulatedStep simulated)
    : SimulatedStep(std::move(simulated)), times(device_times(plan(), trace())), peaks(memory_peaks(plan(), trace())) {}

TracedRun SimulatedRun::traced(const std::string& device) const {
  return {name, &plan(), {trace()}, device, StepTime{step.step_ns(), "simulated"}};
}

const MemoryPeak& SimulatedRun::largest_peak() const {
  return *std::ranges::max_element(peaks, {}, &MemoryPeak::bytes);
}

std::optional<std::size_t> SimulatedRun::too_small(const Machine& machine) const {
  for (std::size_t d = 0; d < peaks.size(); ++d)
    if (const std::int64_t memory = machine.memory_of(step.devices[d]); memory > 0 && peaks[d].bytes > memory) return d;
  return {};
}

}  // namespace overtake
