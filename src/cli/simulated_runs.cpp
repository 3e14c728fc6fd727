#include "cli/simulated_runs.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "plan/divide/usual_transfer.h"
#include "plan/pipeline/search.h"

namespace overtake {
namespace {

std::vector<SimulatedRun::Peak> peaks_of(const Plan& plan, const Trace& trace) {
  std::vector<SimulatedRun::Peak> peaks;
  for (const std::vector<MemorySample>& samples : live_memory(plan, trace)) {
    SimulatedRun::Peak peak;
    for (const MemorySample& s : samples) {
      const std::int64_t bytes = std::accumulate(s.bytes.begin(), s.bytes.end(), std::int64_t{0});
      if (bytes > peak.bytes) peak = {bytes, s.bytes};
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace

const SimulatedRun::Peak& SimulatedRun::largest_peak() const {
  return *std::ranges::max_element(peaks, {}, &Peak::bytes);
}

std::vector<std::uint32_t> devices_of(const RunSpec& spec, const Cluster& cluster, const Topology& topology) {
  const std::uint64_t wanted = std::uint64_t{spec.replicas} * spec.stages;
  if (wanted > topology.device_count)
    fail_user(
        "simulate: --dp {} x --pp {} are {} devices, and cluster {} has {}; add nodes (a preset takes them as NAME:4)",
        spec.replicas, spec.stages, wanted, cluster.name, topology.device_count);
  std::vector<std::uint32_t> devices = spec.devices;
  if (devices.empty()) {
    devices.resize(wanted);
    std::iota(devices.begin(), devices.end(), 0u);
  }
  if (devices.size() != wanted)
    fail_user("--devices: {} are given, and --dp {} x --pp {} are {}", devices.size(), spec.replicas, spec.stages,
              wanted);
  std::vector<std::uint32_t> sorted = devices;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    fail_user("--devices: device {} is given twice", *twice);
  if (sorted.back() >= topology.device_count)
    fail_user("--devices: there is no device {}; cluster {} has devices 0 to {}", sorted.back(), cluster.name,
              topology.device_count - 1);
  return devices;
}

std::optional<std::size_t> RunSimulator::too_small(const SimulatedRun& run) const {
  for (std::size_t d = 0; d < run.peaks.size(); ++d)
    if (const std::int64_t memory = memory_of(run.devices[d]); memory > 0 && run.peaks[d].bytes > memory) return d;
  return {};
}

PipelineProblem RunSimulator::problem_of(const RunSpec& spec) const {
  const std::vector<std::uint32_t> devices = devices_of(spec, cluster_, topology_);
  if (blocks_.blocks.size() < spec.stages)
    fail_user("simulate: --pp {}: {} has only {} layers with weights; use fewer stages", spec.stages,
              blocks_.graph.model, blocks_.blocks.size());
  PipelineProblem problem{.devices = spec.stages, .micro_batches = spec.micro_batches, .stages = block_costs(blocks_)};
  if (spec.stages == 1) return problem;
  problem.transfer_ns = usual_transfer_ns(blocks_, cluster_, topology_, options_.protocol, devices[0], devices[1]);
  for (const std::uint32_t d : devices)
    if (const std::int64_t memory = memory_of(d); memory > 0)
      problem.memory_cap = std::min(memory, problem.memory_cap.value_or(memory));
  return problem;
}

SimulatedRun RunSimulator::run(const RunSpec& spec) const {
  const PipelineProblem problem = problem_of(spec);
  if (spec.stages == 1) return run_schedule(spec, problem, make_schedule("1f1b", problem));
  if (spec.schedule != "search")
    return run_schedule(spec, problem, make_schedule(spec.schedule, problem, spec.schedule_options));
  FoundSchedule found =
      search_schedule(problem, {.seconds = spec.search_seconds, .may_repeat_weights = !spec.weights_once});
  found.schedule.name = "search";
  SimulatedRun run = run_schedule(spec, problem, found.schedule);
  run.reason = found.reason;
  // The search knows transfers only as a delay; where they are more than that, what it found may not be the best.
  if (found.best_named.empty()) return run;
  PipelineSchedule best = make_schedule(found.best_named, problem, spec.schedule_options);
  best.name = "search";
  SimulatedRun named = run_schedule(spec, problem, best);
  if (named.result.trace.step_ns >= run.result.trace.step_ns) return run;
  named.reason = found.best_named + " as it is";
  return named;
}

SimulatedRun RunSimulator::run_schedule(const RunSpec& spec, const PipelineProblem& problem,
                                        const PipelineSchedule& schedule) const {
  const bool reverses = spec.reduce == "first-k";
  if (reverses && !spec.first_k && spec.replicas > 1) return best_first_k(spec, problem, schedule);
  return run_with(spec, problem, schedule, reverses ? spec.first_k.value_or(FirstK{}) : FirstK{});
}

// Every task takes what it takes on its own device's kind: which tasks there are does not depend on that.
Outline RunSimulator::spread_over(const RunSpec& spec, const PipelineProblem& problem, const PipelineSchedule& schedule,
                                  FirstK first_k, const std::vector<std::uint32_t>& devices) const {
  const bool reverses = spec.reduce == "first-k";
  const OutlineOptions options{.replicas = spec.replicas,
                               .order = reverses ? ReductionOrder::by_layer : reduction_order_from_string(spec.reduce),
                               .bucket_bytes = spec.bucket_bytes,
                               .first_k = first_k};
  Outline plan = make_outline(blocks_, problem, schedule, options);
  for (std::uint32_t kind = 0; kind < work_.by_kind.size(); ++kind) {
    if (work_.by_kind[kind].empty()) continue;
    BlockGraph blocks = blocks_;
    blocks.work = work_.by_kind[kind];
    const std::vector<TaskCost> work = make_outline(blocks, problem, schedule, options).work;
    for (TaskId t = 0; t < work.size(); ++t)
      if (topology_.vertices[devices[plan.plan.graph.tasks[t].device]].type == kind) plan.work[t] = work[t];
  }
  return plan;
}

SimulatedRun RunSimulator::run_with(const RunSpec& spec, const PipelineProblem& problem,
                                    const PipelineSchedule& schedule, FirstK first_k) const {
  SimulatedRun run;
  run.devices = devices_of(spec, cluster_, topology_);
  run.plan = spread_over(spec, problem, schedule, first_k, run.devices);
  std::vector<std::string> parts;
  if (spec.stages > 1) parts.push_back(schedule.name);
  if (spec.replicas > 1) parts.push_back(spec.reduce == "first-k" ? "first-k " + to_string(first_k) : spec.reduce);
  run.name = parts.empty() ? "one device" : fmt::format("{}", fmt::join(parts, " + "));
  run.plan.plan.schedule = run.name;
  const ClusterJob job = run.job(spec.steps);
  run.result = simulate(cluster_, topology_, {&job, 1}, options_)[0];
  run.times = device_times(run.plan.plan, run.result.trace);
  run.peaks = peaks_of(run.plan.plan, run.result.trace);
  return run;
}

// Those that do not fit do not count, unless none does.
SimulatedRun RunSimulator::best_first_k(const RunSpec& spec, const PipelineProblem& problem,
                                        const PipelineSchedule& schedule) const {
  std::optional<SimulatedRun> best;
  search_first_k(most_first_k(schedule.layout), [&](FirstK first_k) {
    SimulatedRun run = run_with(spec, problem, schedule, first_k);
    const auto rank = [&](const SimulatedRun& r) { return std::pair(!fits(r), r.result.trace.step_ns); };
    if (best && rank(run) >= rank(*best)) return false;
    best = std::move(run);
    return true;
  });
  return std::move(*best);
}

}  // namespace overtake
