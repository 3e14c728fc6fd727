// Several jobs on one cluster.

#include <algorithm>

#include "cli/simulate/simulation.h"

namespace overtake {
namespace {

constexpr double kMargin = 2;                        // others slow a job down: so much longer the rest is to go on
constexpr std::uint64_t kMostTaskRuns = 20'000'000;  // of one job over all its steps

// From the end of its first step to the end of the last one that ended by `until_ns`.
double mean_step_ms(const JobResult& result, std::int64_t until_ns) {
  const std::vector<std::int64_t>& ends = result.step_ends_ns;
  const auto past = std::ranges::upper_bound(ends, until_ns);
  const auto last = std::max<std::ptrdiff_t>(0, past - ends.begin() - 1);
  if (last == 0) return static_cast<double>(ends[0]) * 1e-6;
  return static_cast<double>(ends[static_cast<std::size_t>(last)] - ends[0]) * 1e-6 / static_cast<double>(last);
}

}  // namespace

SharedRun run_together(const std::vector<SimulatedRun>& alone, const std::vector<int>& steps, const Machine& machine) {
  double longest = 0;  // of all steps of a job
  for (std::size_t j = 0; j < alone.size(); ++j) longest = std::max(longest, alone[j].step_ms() * steps[j]);
  std::vector<ClusterJob> jobs;
  for (std::size_t j = 0; j < alone.size(); ++j) {
    const double own = alone[j].step_ms() * steps[j];
    const double most =
        static_cast<double>(kMostTaskRuns / std::max<std::size_t>(1, alone[j].step.outline.work.size()));
    const bool goes_on = steps[j] > 1 && own < longest;
    const double wanted = goes_on ? std::min(most, kMargin * longest / alone[j].step_ms()) : 0;
    jobs.push_back(alone[j].step.job(std::max(steps[j], static_cast<int>(wanted))));
  }
  SharedRun shared{
      .results = simulate(machine.cluster, machine.topology, jobs, machine.options), .steps = {}, .step_ms = {}};
  for (const ClusterJob& job : jobs) shared.steps.push_back(job.steps);
  std::int64_t until_ns = shared.results[0].makespan_ns;
  for (const JobResult& result : shared.results) until_ns = std::min(until_ns, result.makespan_ns);
  for (const JobResult& result : shared.results)
    shared.step_ms.push_back(result.is_finished ? mean_step_ms(result, until_ns) : 0);
  return shared;
}

}  // namespace overtake
