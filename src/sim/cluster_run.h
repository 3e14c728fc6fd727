#pragma once
// One simulation of jobs on a cluster, from start to end. What a lane begins next waits for one task at a time: the
// first of its dependencies that has not ended keeps the lane in a list, and when it ends the lane looks on from there.
// So a task costs its dependencies once, and memory is a few numbers per task however many steps run.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "sim/busy_device.h"
#include "sim/cluster_simulator.h"
#include "sim/plan_transfers.h"

namespace overtake {

class ClusterRun {
 public:
  // All must outlive this.
  ClusterRun(const Cluster& cluster, const Topology& topology, std::span<const ClusterJob> jobs,
             const ClusterOptions& options);

  void run();
  JobResult result(std::uint32_t job) const;

 private:
  struct LaneState {
    std::uint32_t job = 0, device = 0;  // of the cluster
    std::span<const TaskId> tasks;
    std::uint32_t place = 0, step = 0;  // of the task to begin next
    std::uint32_t edge = 0;             // of its dependencies, those before this one have ended
    std::uint32_t next_waiter = kNone;  // the next lane that waits for the same task
    TaskId running = kNone;             // of an ordinary lane
    bool is_asynchronous = false;
  };
  struct TransferState {
    GroupId group = kNone;
    std::uint32_t arrived = 0;  // of a message: in so many steps
    // Of the last two steps: no member can begin the one after before all have begun the first.
    std::array<CollectiveId, 2> collective = {kNone, kNone};
    std::array<std::uint32_t, 2> step = {kNone, kNone};
  };
  struct JobState {
    const ClusterJob* job = nullptr;
    std::uint32_t steps = 1;
    std::uint32_t first_lane = 0, lanes = 0;
    Dependencies within, across;  // a step, and to the step before
    PlanTransfers transfers;
    std::vector<TransferState> transfer_states;
    // Per task.
    std::vector<std::uint32_t> begun, ended;  // in so many steps
    std::vector<std::uint32_t> lane, first_waiter;
    std::vector<std::int64_t> begin_ns, end_ns;  // the last time
    // Per step.
    std::vector<std::size_t> left;  // tasks that have not ended
    std::vector<std::int64_t> step_begin_ns, step_end_ns;
    std::int64_t last_end_ns = 0;
  };
  struct Owner {
    std::uint32_t job = 0, transfer = 0, step = 0;
  };

  void add_job(const ClusterJob& job);
  void start_job(std::uint32_t job);
  void fail(std::uint32_t device);
  std::int64_t next_time();
  void react();

  void try_lane(std::uint32_t lane);
  TaskId unmet(LaneState& lane) const;
  bool is_left_out(const JobState& job, TaskId t, std::uint32_t step) const;
  void begin_head(std::uint32_t lane);
  bool begin_transfer(std::uint32_t job, TaskId t, std::uint32_t step);
  CollectiveId add_collective(std::uint32_t job, std::uint32_t transfer, std::uint32_t step);
  static std::vector<std::uint32_t> with_copies(const JobState& job, const PlanTransfer& transfer);
  void note(const CollectiveReport& report);
  void end_task(JobState& job, TaskId t);
  void wake_waiters(JobState& job, TaskId t);
  void make_dirty(std::uint32_t device);
  void settle(std::uint32_t device);
  void refresh(std::uint32_t device);

  // cluster_result.cpp
  Trace trace(const JobState& job, bool is_finished) const;
  std::vector<StuckTask> stuck(const JobState& job) const;
  std::string where(const JobState& job, TaskId t) const;
  std::string why_open(const JobState& job, TaskId t) const;
  std::uint32_t device_of(const JobState& job, TaskId t) const { return lanes_[job.lane[t]].device; }

  const Topology& topology_;
  const ClusterOptions& options_;
  FlowNetwork network_;
  Collectives collectives_;
  std::vector<BusyDevice> devices_;
  std::vector<JobState> jobs_;
  std::vector<LaneState> lanes_;
  std::vector<Owner> owners_;                                                              // per collective
  std::map<std::tuple<std::uint32_t, bool, std::vector<std::uint32_t>>, GroupId> groups_;  // of a job: for messages?

  std::int64_t now_ = 0;
  EventQueue device_ends_;  // id is the device, data its stamp
  struct Due {
    std::int64_t at_ns = kNever;
    std::uint32_t stamp = 0;  // events with another are of the past
  };
  std::vector<Due> due_;                                                   // per device
  std::vector<std::pair<std::int64_t, std::uint32_t>> starts_, failures_;  // (time, job or device), last first
  std::vector<std::uint32_t> awake_;                                       // lanes that may have something to begin
  std::vector<std::uint32_t> dirty_;                                       // devices whose rates may change
  std::vector<char> is_dirty_;
  std::vector<double> link_shares_;   // per device, as set
  std::vector<std::uint32_t> ended_;  // lanes; of settle()
};

}  // namespace overtake
