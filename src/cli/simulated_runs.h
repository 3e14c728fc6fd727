#pragma once
// Training steps on clusters that are not there: a model's blocks, spread over devices, simulated.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "passes/parallel/spread.h"
#include "passes/pipeline/named.h"
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
  bool weights_once = false;                  // a search may not put a layer on two devices, as dualpipe does
  std::string reduce = "buckets";             // buckets, by-layer, scatter-gather, or first-k
  std::optional<std::uint32_t> first_k = {};  // of first-k; none: the best
  std::int64_t bucket_bytes = 25 << 20;
  int steps = 1;
};

struct SimulatedRun {
  std::string name;    // for tables: "zb-h1", "first-k 12"
  std::string reason;  // of a search: where its schedule came from
  ClusterPlan plan;
  JobResult result;
  std::vector<DeviceTime> times;  // per device of the plan
  struct Peak {
    std::int64_t bytes = 0;
    std::array<std::int64_t, kMemoryGroups.size()> groups{};  // at that moment
  };
  std::vector<Peak> peaks;  // per device of the plan

  double step_ms() const { return static_cast<double>(result.trace.step_ns) * 1e-6; }
  const Peak& largest_peak() const;
};

class RunSimulator {
 public:
  // All must outlive it. `memory` is what each device may use; none: as much as it needs.
  RunSimulator(const BlockGraph& blocks, const Cluster& cluster, const Topology& topology,
               const ClusterOptions& options, std::optional<std::int64_t> memory)
      : blocks_(blocks), cluster_(cluster), topology_(topology), options_(options), memory_(memory) {}

  // User errors: more devices than there are, a schedule that cannot be.
  SimulatedRun run(const RunSpec& spec) const;
  // Whether every device has room for it.
  bool fits(const SimulatedRun& run) const { return !memory_ || run.largest_peak().bytes <= *memory_; }

 private:
  PipelineProblem problem_of(const RunSpec& spec) const;
  SimulatedRun run_schedule(const RunSpec& spec, const PipelineProblem& problem,
                            const PipelineSchedule& schedule) const;
  SimulatedRun run_with(const RunSpec& spec, const PipelineProblem& problem, const PipelineSchedule& schedule,
                        std::uint32_t first_k) const;
  SimulatedRun best_first_k(const RunSpec& spec, const PipelineProblem& problem,
                            const PipelineSchedule& schedule) const;

  const BlockGraph& blocks_;
  const Cluster& cluster_;
  const Topology& topology_;
  const ClusterOptions& options_;
  std::optional<std::int64_t> memory_;
};

}  // namespace overtake
