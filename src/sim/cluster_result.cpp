// What came of a simulation: traces, and who waits for whom where a job did not finish.

#include <algorithm>

#include "base/error.h"
#include "sim/cluster_run.h"

namespace overtake {
namespace {

constexpr std::size_t kMostNamed = 3;  // partners of a task that waits

}  // namespace

std::vector<JobResult> simulate(const Cluster& cluster, const Topology& topology, std::span<const ClusterJob> jobs,
                                const ClusterOptions& options) {
  ClusterRun run(cluster, topology, jobs, options);
  run.run();
  std::vector<JobResult> results;
  for (std::uint32_t j = 0; j < jobs.size(); ++j) results.push_back(run.result(j));
  return results;
}

JobResult ClusterRun::result(std::uint32_t id) const {
  const JobState& job = jobs_[id];
  const std::int64_t start = job.job->start_ns;
  JobResult result;
  result.makespan_ns = job.last_end_ns - start;
  result.is_finished = std::ranges::all_of(job.left, [](std::size_t left) { return left == 0; });
  for (std::uint32_t s = 0; s < job.steps && job.left[s] == 0; ++s)
    result.step_ends_ns.push_back(std::max(job.step_end_ns[s], start) - start);
  result.trace = trace(job, result.is_finished);
  for (std::uint32_t l = job.first_lane; l < job.first_lane + job.lanes; ++l)
    result.lane_progress.push_back(
        lanes_[l].tasks.empty() ? 0 : lanes_[l].step * std::uint64_t{lanes_[l].tasks.size()} + lanes_[l].place);
  if (!result.is_finished) result.stuck = stuck(job);
  return result;
}

Trace ClusterRun::trace(const JobState& job, bool is_finished) const {
  std::uint32_t last = job.steps - 1;
  while (last > 0 && job.step_begin_ns[last] == kNever) --last;
  const std::int64_t origin = job.step_begin_ns[last];
  Trace trace;
  trace.step_ns = job.last_end_ns - job.job->start_ns;
  if (is_finished && job.steps > 1 && origin != kNever) {
    // The first step is a shorter one where it has no delayed tasks, and where devices of unequal speed begin together.
    const std::uint32_t first = job.steps > 2 ? 1 : 0;
    trace.step_ns = (origin - job.step_begin_ns[first]) / std::int64_t{last - first};
  }
  for (std::uint32_t l = 0; l < job.lanes; ++l)
    for (const TaskId t : lanes_[job.first_lane + l].tasks)
      if (job.ended[t] == last + 1 && job.end_ns[t] >= 0)
        trace.spans.push_back({t, l, job.begin_ns[t] - origin, job.end_ns[t] - origin});
  return trace;
}

std::string ClusterRun::where(const JobState& job, TaskId t) const {
  std::string text =
      fmt::format("{} on {}", job.job->plan->graph.task_name(t), topology_.vertices[device_of(job, t)].name);
  if (job.steps > 1) text += fmt::format(" in step {}", job.ended[t]);
  return text;
}

// Of a task that has begun and not ended, on a device that still runs: a transfer.
std::string ClusterRun::why_open(const JobState& job, TaskId t) const {
  const PlanTransfer& transfer = job.transfers.list[job.transfers.transfer[t]];
  std::string missing, gone;
  std::size_t more = 0;
  for (const TaskId member : job.transfers.tasks_of(transfer)) {
    const std::uint32_t device = device_of(job, member);
    if (devices_[device].is_stopped() && gone.empty()) gone = topology_.vertices[device].name;
    if (job.begun[member] > job.ended[t] || transfer.operation == Operation::send_recv) continue;
    if (++more <= kMostNamed) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", where(job, member));
  }
  if (more > kMostNamed) missing += fmt::format(" and {} more", more - kMostNamed);
  if (!missing.empty()) return fmt::format("waits for {}, not begun", missing);
  if (!gone.empty()) return fmt::format("waits for {}, which is gone", gone);
  return "waits behind another transfer of the same devices that does not end";
}

// Of each lane, the first task that did not end: on devices that are gone, then those under way, then those that wait.
std::vector<StuckTask> ClusterRun::stuck(const JobState& job) const {
  std::vector<std::pair<int, StuckTask>> all;
  for (std::uint32_t l = job.first_lane; l < job.first_lane + job.lanes; ++l) {
    const LaneState& lane = lanes_[l];
    const auto least = std::ranges::min_element(lane.tasks, {}, [&](TaskId t) { return job.ended[t]; });
    if (least == lane.tasks.end() || job.ended[*least] >= job.steps) continue;
    const TaskId t = *least;
    const std::uint32_t own = l - job.first_lane;
    const std::string name = where(job, t);
    if (devices_[lane.device].is_stopped()) {
      all.push_back({0, {t, own, fmt::format("{} does not end: the device is gone", name)}});
    } else if (job.begun[t] > job.ended[t]) {
      all.push_back({1, {t, own, fmt::format("{} {}", name, why_open(job, t))}});
    } else {
      LaneState head = lane;
      const TaskId before = unmet(head);
      const std::string_view state = job.begun[before] > job.ended[before] ? "ended" : "begun";
      all.push_back({2, {t, own, fmt::format("{} waits for {}, not {}", name, where(job, before), state)}});
    }
  }
  std::ranges::stable_sort(all, {}, &std::pair<int, StuckTask>::first);
  std::vector<StuckTask> out;
  for (auto& [order, task] : all) out.push_back(std::move(task));
  return out;
}

}  // namespace overtake
