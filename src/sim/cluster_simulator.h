#pragma once
// Plans on a cluster: the lanes of every device, and what passes between devices as flows in the network. The same
// contract as executors': plans in, traces out. docs/machines.md says what is modelled.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "overtake/cluster.h"
#include "overtake/cluster_options.h"
#include "overtake/plan.h"
#include "overtake/task_cost.h"

namespace overtake {

// Devices that do the same at the same time as those of a job and are not simulated. Every collective of the plan has
// their counterparts as members too (sim/folded_group.h).
struct DeviceCopies {
  std::vector<std::uint32_t> devices{};  // those of the job once more for every copy, one copy behind the other
  // Links between switches outside the nodes carry less than all nodes may send: the job has its share of them, as much
  // as every copy.
  bool share_outside = false;
};

// Steps of a plan, one behind the other without a barrier: a task waits for its lane and for what it reads and writes.
// Transfers are tasks of Op::transfer; joins are not looked at.
struct ClusterJob {
  const Plan* plan = nullptr;
  std::span<const TaskCost> work{};      // per task; not looked at for transfers
  std::vector<std::uint32_t> devices{};  // per device of the plan, which of the cluster: all different
  std::int64_t start_ns = 0;
  // Of several steps, the first leaves out the delayed tasks, which belong to a step before it.
  int steps = 1;
  DeviceCopies copies{};
};

// The first task of a lane that did not end.
struct StuckTask {
  TaskId task = kNone;
  std::uint32_t lane = 0;  // of the plan
  std::string why;         // "conv1.forward on device 2 waits for ..."
};

struct JobResult {
  // The last step; times are from the start of its first task. step_ns is the makespan of one step, of several the time
  // from the start of one to the start of the next, on average, without the first where there are more than two. Of a
  // job that did not finish, what ended in the last step that it came to.
  Trace trace;
  std::int64_t makespan_ns = 0;              // from the job's start to the end of its last task
  std::vector<std::int64_t> step_ends_ns;    // from the job's start, of the steps that ended
  bool is_finished = false;                  // false: some wait for ever
  std::vector<std::uint64_t> lane_progress;  // per lane: how many tasks it has begun, over all steps
  std::vector<StuckTask> stuck;              // those that nobody else holds up first
};

// The jobs share the cluster: devices, where two have a task on one, and links.
std::vector<JobResult> simulate(const Cluster& cluster, const Topology& topology, std::span<const ClusterJob> jobs,
                                const ClusterOptions& options);

}  // namespace overtake
