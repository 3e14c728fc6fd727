#include "cli/simulated_runs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace overtake {
namespace {

std::vector<SimulatedRun::Peak> peaks_of(const Plan& plan, const Trace& trace) {
  std::vector<SimulatedRun::Peak> peaks;
  for (const std::vector<MemorySample>& samples : live_memory(plan, trace)) {
    SimulatedRun::Peak peak;
    for (const MemorySample& s : samples) {
      const std::int64_t bytes = total_bytes(s);
      if (bytes > peak.bytes) peak = {bytes, s.bytes};
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::string name_of(const ParallelOptions& options, const ParallelCandidate& chosen) {
  std::vector<std::string> parts;
  if (options.stages > 1) parts.push_back(options.searches() ? "search" : chosen.schedule.name);
  if (options.replicas > 1)
    parts.push_back(chosen.reduce == "first-k" ? "first-k " + to_string(chosen.first_k) : chosen.reduce);
  return parts.empty() ? "one device" : fmt::format("{}", fmt::join(parts, " + "));
}

}  // namespace

const SimulatedRun::Peak& SimulatedRun::largest_peak() const {
  return *std::ranges::max_element(peaks, {}, &Peak::bytes);
}

std::optional<std::size_t> SimulatedRun::too_small(const Machine& machine) const {
  for (std::size_t d = 0; d < peaks.size(); ++d)
    if (const std::int64_t memory = machine.memory_of(step.devices[d]); memory > 0 && peaks[d].bytes > memory) return d;
  return {};
}

std::vector<std::uint32_t> devices_of(const SimulatedSpec& spec, const Machine& machine) {
  const std::uint64_t wanted = std::uint64_t{spec.parallel.replicas} * spec.parallel.stages;
  if (wanted > machine.topology.device_count)
    fail_user(
        "simulate: --dp {} x --pp {} are {} devices, and cluster {} has {}; add nodes (a preset takes them as NAME:4)",
        spec.parallel.replicas, spec.parallel.stages, wanted, machine.cluster.name, machine.topology.device_count);
  std::vector<std::uint32_t> devices = spec.devices;
  if (devices.empty()) {
    devices.resize(wanted);
    std::iota(devices.begin(), devices.end(), 0u);
  }
  if (devices.size() != wanted)
    fail_user("--devices: {} are given, and --dp {} x --pp {} are {}", devices.size(), spec.parallel.replicas,
              spec.parallel.stages, wanted);
  std::vector<std::uint32_t> sorted = devices;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    fail_user("--devices: device {} is given twice", *twice);
  if (sorted.back() >= machine.topology.device_count)
    fail_user("--devices: there is no device {}; cluster {} has devices 0 to {}", sorted.back(), machine.cluster.name,
              machine.topology.device_count - 1);
  return devices;
}

SimulatedRun simulate_run(const Workload& work, const SimulatedSpec& spec, const Machine& machine) {
  const StepPlanner planner(work, spec.parallel, machine, devices_of(spec, machine), spec.steps);
  const ParallelCandidate chosen = planner.candidates()[0];
  SimulatedRun run{.name = name_of(spec.parallel, chosen), .reason = chosen.reason, .step = planner.predict(chosen)};
  run.step.outline.plan.schedule = run.name;
  run.times = device_times(run.plan(), run.trace());
  run.peaks = peaks_of(run.plan(), run.trace());
  return run;
}

}  // namespace overtake
