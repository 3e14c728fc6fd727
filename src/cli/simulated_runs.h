#pragma once
// Training steps on clusters that are not there: a model's blocks, spread over devices, simulated.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "cli/workload.h"
#include "plan/divide/outline.h"
#include "plan/pipeline/named.h"
#include "report/device_time.h"
#include "report/live_memory.h"
#include "sim/cluster_simulator.h"

namespace overtake {

// How a step is spread.
struct RunSpec {
  std::uint32_t replicas = 1, stages = 1, micro_batches = 1;
  std::string schedule = "1f1b";  // of the pipeline: a name of named_schedules(), or search
  ScheduleOptions schedule_options = {};
  double search_seconds = 2;
  bool weights_once = false;           // a search may not put a layer on two devices, as dualpipe does
  std::string reduce = "buckets";      // buckets, by-layer, scatter-gather, or first-k
  std::optional<FirstK> first_k = {};  // of first-k; none: the best
  std::int64_t bucket_bytes = 25 << 20;
  int steps = 1;
  std::vector<std::uint32_t> devices = {};  // of the cluster; none: the first
};

// As many as replicas x stages. User errors: the cluster has fewer, or other ones.
std::vector<std::uint32_t> devices_of(const RunSpec& spec, const Cluster& cluster, const Topology& topology);

struct SimulatedRun {
  std::string name;    // for tables: "zb-h1", "first-k 12"
  std::string reason;  // of a search: where its schedule came from
  Outline plan;
  std::vector<std::uint32_t> devices;  // per device of the plan, which of the cluster
  JobResult result;
  std::vector<DeviceTime> times;  // per device of the plan
  struct Peak {
    std::int64_t bytes = 0;
    std::array<std::int64_t, kMemoryGroups.size()> groups{};  // at that moment
  };
  std::vector<Peak> peaks;  // per device of the plan

  double step_ms() const { return static_cast<double>(result.trace.step_ns) * 1e-6; }
  ClusterJob job(int steps) const {
    return {.plan = &plan.plan, .work = plan.work, .devices = devices, .steps = steps};
  }
  const Peak& largest_peak() const;
};

class RunSimulator {
 public:
  // All must outlive it. `memory` is what each device of the cluster may use, 0: as much as it needs; none: all so.
  RunSimulator(const Workload& work, const Cluster& cluster, const Topology& topology, const ClusterOptions& options,
               std::vector<std::int64_t> memory = {})
      : work_(work),
        blocks_(work.blocks),
        cluster_(cluster),
        topology_(topology),
        options_(options),
        memory_(std::move(memory)) {}

  // User errors: more devices than there are, a schedule that cannot be.
  SimulatedRun run(const RunSpec& spec) const;
  // Of the run's devices, the first that has no room for it.
  std::optional<std::size_t> too_small(const SimulatedRun& run) const;
  bool fits(const SimulatedRun& run) const { return !too_small(run); }
  std::int64_t memory_of(std::uint32_t device) const { return memory_.empty() ? 0 : memory_[device]; }

 private:
  PipelineProblem problem_of(const RunSpec& spec) const;
  Outline spread_over(const RunSpec& spec, const PipelineProblem& problem, const PipelineSchedule& schedule,
                      FirstK first_k, const std::vector<std::uint32_t>& devices) const;
  SimulatedRun run_schedule(const RunSpec& spec, const PipelineProblem& problem,
                            const PipelineSchedule& schedule) const;
  SimulatedRun run_with(const RunSpec& spec, const PipelineProblem& problem, const PipelineSchedule& schedule,
                        FirstK first_k) const;
  SimulatedRun best_first_k(const RunSpec& spec, const PipelineProblem& problem,
                            const PipelineSchedule& schedule) const;

  const Workload& work_;
  const BlockGraph& blocks_;
  const Cluster& cluster_;
  const Topology& topology_;
  const ClusterOptions& options_;
  std::vector<std::int64_t> memory_;
};

}  // namespace overtake
