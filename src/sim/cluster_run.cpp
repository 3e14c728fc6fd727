#include "sim/cluster_run.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"

namespace overtake {

ClusterRun::ClusterRun(const Cluster& cluster, const Topology& topology, std::span<const ClusterJob> jobs,
                       const ClusterOptions& options)
    : topology_(topology),
      options_(options),
      network_(topology.links),
      collectives_(cluster, topology, network_),
      due_(topology.device_count),
      is_dirty_(topology.device_count, 0),
      link_shares_(topology.device_count, 1) {
  OVERTAKE_CHECK(options.speeds.empty() || options.speeds.size() == topology.device_count, "{} speeds of {} devices",
                 options.speeds.size(), topology.device_count);
  for (std::uint32_t d = 0; d < topology.device_count; ++d) {
    const double speed = options.speeds.empty() ? 1 : options.speeds[d];
    OVERTAKE_CHECK(speed > 0, "device {} has speed {}", d, speed);
    devices_.emplace_back(cluster.devices[topology.vertices[d].type], speed);
  }
  for (const DeviceFailure& failure : options.failures) {
    OVERTAKE_CHECK(failure.device < topology.device_count && failure.at_ns >= 0, "device {} fails at {} ns",
                   failure.device, failure.at_ns);
    failures_.emplace_back(failure.at_ns, failure.device);
  }
  for (const ClusterJob& job : jobs) add_job(job);
  std::ranges::sort(starts_, std::greater<>());
  std::ranges::sort(failures_, std::greater<>());
}

void ClusterRun::add_job(const ClusterJob& job) {
  const Plan& plan = *job.plan;
  const std::size_t n = plan.graph.tasks.size();
  const auto id = static_cast<std::uint32_t>(jobs_.size());
  OVERTAKE_CHECK(job.work.size() == n, "work of {} tasks for {}", job.work.size(), n);
  OVERTAKE_CHECK(job.steps >= 1 && job.start_ns >= 0, "{} steps from {} ns on", job.steps, job.start_ns);
  std::vector<std::uint32_t> sorted = job.devices;
  std::ranges::sort(sorted);
  OVERTAKE_CHECK(
      std::ranges::adjacent_find(sorted) == sorted.end() && (sorted.empty() || sorted.back() < topology_.device_count),
      "a job has a device twice, or one that is not in the cluster");
  OVERTAKE_CHECK(job.copies.devices.empty() || job.copies.devices.size() % job.devices.size() == 0,
                 "{} copies of {} devices", job.copies.devices.size(), job.devices.size());
  if (job.copies.share_outside)
    for (LinkId l = 0; l < topology_.links.size(); ++l)
      if (is_outside(topology_, topology_.links[l]))
        network_.set_bandwidth(0, l,
                               static_cast<double>(topology_.links[l].bandwidth) /
                                   (1 + static_cast<double>(job.copies.devices.size() / job.devices.size())));
  JobState state;
  state.job = &job;
  state.steps = static_cast<std::uint32_t>(job.steps);
  state.first_lane = static_cast<std::uint32_t>(lanes_.size());
  state.lanes = static_cast<std::uint32_t>(plan.lanes.size());
  state.within = dependencies(plan);
  if (job.steps > 1) state.across = dependencies_across_steps(plan.graph);
  state.begun.assign(n, 0);
  state.ended.assign(n, kNone);  // those on no lane count as ended
  state.lane.assign(n, kNone);
  state.first_waiter.assign(n, kNone);
  state.begin_ns.assign(n, -1);
  state.end_ns.assign(n, -1);
  state.left.assign(state.steps, 0);
  state.step_begin_ns.assign(state.steps, kNever);
  state.step_end_ns.assign(state.steps, -1);
  state.last_end_ns = job.start_ns;
  for (const Lane& lane : plan.lanes) {
    OVERTAKE_CHECK(lane.device < job.devices.size(), "device {} of a plan has no place in the cluster", lane.device);
    for (const TaskId t : lane.tasks) {
      OVERTAKE_CHECK(t < n && state.lane[t] == kNone, "task {} is unknown or planned twice", t);
      OVERTAKE_CHECK(!lane.is_asynchronous || plan.graph.tasks[t].op == Op::transfer,
                     "task {} is no transfer, but on an asynchronous lane", plan.graph.task_name(t));
      state.lane[t] = static_cast<std::uint32_t>(lanes_.size());
      state.begun[t] = state.ended[t] = is_left_out(state, t, 0) ? 1 : 0;
      for (std::uint32_t step = state.ended[t]; step < state.steps; ++step) ++state.left[step];
    }
    lanes_.push_back({.job = id,
                      .device = job.devices[lane.device],
                      .tasks = lane.tasks,
                      .step = lane.tasks.empty() ? state.steps : 0,
                      .is_asynchronous = lane.is_asynchronous});
  }
  state.transfers = transfers_of(plan, job.devices);
  state.transfer_states.resize(state.transfers.list.size());
  jobs_.push_back(std::move(state));
  starts_.emplace_back(job.start_ns, id);
}

// In a run of several steps, the delayed tasks in the first would belong to a step that never was.
bool ClusterRun::is_left_out(const JobState& job, TaskId t, std::uint32_t step) const {
  return step == 0 && job.steps > 1 && job.job->plan->graph.tasks[t].is_delayed;
}

std::int64_t ClusterRun::next_time() {
  std::int64_t time = collectives_.next_time();
  if (!device_ends_.empty()) time = std::min(time, device_ends_.top().time_ns);
  if (!starts_.empty()) time = std::min(time, starts_.back().first);
  if (!failures_.empty()) time = std::min(time, failures_.back().first);
  return time;
}

void ClusterRun::run() {
  for (now_ = next_time(); now_ != kNever; now_ = next_time()) {
    for (const CollectiveReport& report : collectives_.advance(now_)) note(report);
    while (!device_ends_.empty() && device_ends_.top().time_ns <= now_) {
      const Event event = device_ends_.top();
      device_ends_.pop();
      if (due_[event.id].stamp == event.data) make_dirty(event.id);
    }
    for (; !failures_.empty() && failures_.back().first == now_; failures_.pop_back()) fail(failures_.back().second);
    for (; !starts_.empty() && starts_.back().first == now_; starts_.pop_back()) start_job(starts_.back().second);
    react();
  }
}

// Until nothing more begins or ends now; then the devices go on at new rates.
void ClusterRun::react() {
  std::size_t settled = 0;
  do {
    for (std::size_t i = 0; i < awake_.size(); ++i) try_lane(awake_[i]);
    awake_.clear();
    for (const std::uint32_t device : collectives_.take_changed()) make_dirty(device);
    for (; settled < dirty_.size(); ++settled) settle(dirty_[settled]);
  } while (!awake_.empty());
  for (const std::uint32_t device : dirty_) refresh(device);
  dirty_.clear();
}

void ClusterRun::start_job(std::uint32_t job) {
  for (std::uint32_t l = 0; l < jobs_[job].lanes; ++l) awake_.push_back(jobs_[job].first_lane + l);
}

void ClusterRun::fail(std::uint32_t device) {
  settle(device);  // what ends at this moment has ended
  devices_[device].stop();
  make_dirty(device);
}

void ClusterRun::try_lane(std::uint32_t l) {
  LaneState& lane = lanes_[l];
  JobState& job = jobs_[lane.job];
  while (lane.running == kNone && lane.step < job.steps && !devices_[lane.device].is_stopped()) {
    const TaskId t = lane.tasks[lane.place];
    if (is_left_out(job, t, lane.step)) {
      if (++lane.place == lane.tasks.size()) lane.place = 0, ++lane.step;
      continue;
    }
    if (const TaskId before = unmet(lane); before != kNone) {
      lane.next_waiter = job.first_waiter[before];
      job.first_waiter[before] = l;
      return;
    }
    begin_head(l);
  }
}

// The first task that the lane's next one still waits for, or kNone.
TaskId ClusterRun::unmet(LaneState& lane) const {
  const JobState& job = jobs_[lane.job];
  const TaskId t = lane.tasks[lane.place];
  const std::span<const TaskId> within = job.within.of(t);
  const bool is_recv = job.transfers.transfer[t] != kNone && job.job->plan->graph.tasks[t].kind == Kind::recv;
  for (; lane.edge < within.size(); ++lane.edge) {
    const TaskId before = within[lane.edge];
    // A message is under way from the start of its send; the recv ends when it is there.
    const bool is_message = is_recv && job.transfers.transfer[before] == job.transfers.transfer[t];
    if ((is_message ? job.begun : job.ended)[before] <= lane.step) return before;
  }
  if (lane.step == 0) return kNone;
  const std::span<const TaskId> across = job.across.of(t);
  for (; lane.edge - within.size() < across.size(); ++lane.edge) {
    const TaskId before = across[lane.edge - within.size()];
    if (job.ended[before] < lane.step) return before;
  }
  return job.ended[t] < lane.step ? t : kNone;
}

void ClusterRun::begin_head(std::uint32_t l) {
  LaneState& lane = lanes_[l];
  JobState& job = jobs_[lane.job];
  const TaskId t = lane.tasks[lane.place];
  const std::uint32_t step = lane.step;
  lane.edge = 0;
  if (++lane.place == lane.tasks.size()) lane.place = 0, ++lane.step;
  job.begun[t] = step + 1;
  job.begin_ns[t] = now_;
  job.step_begin_ns[step] = std::min(job.step_begin_ns[step], now_);
  if (job.transfers.transfer[t] != kNone) {
    if (begin_transfer(lane.job, t, step) && !lane.is_asynchronous) lane.running = t;
    return;
  }
  const TaskCost& work = job.job->work[t];
  if (work.ns <= 0) return end_task(job, t);
  lane.running = t;
  devices_[lane.device].start(now_, l, work);
  make_dirty(lane.device);
}

// Whether it is under way now; or it has ended at once.
bool ClusterRun::begin_transfer(std::uint32_t id, TaskId t, std::uint32_t step) {
  JobState& job = jobs_[id];
  const std::uint32_t index = job.transfers.transfer[t], rank = job.transfers.rank[t];
  const PlanTransfer& transfer = job.transfers.list[index];
  TransferState& state = job.transfer_states[index];
  if (transfer.operation != Operation::send_recv) {
    if (state.step[step % 2] != step) {
      state.collective[step % 2] = add_collective(id, index, step);
      state.step[step % 2] = step;
    }
    collectives_.ready(now_, state.collective[step % 2], rank);
    return true;
  }
  if (rank == 1) {
    if (state.arrived <= step) return true;
    end_task(job, t);
    return false;
  }
  wake_waiters(job, t);
  const std::span<const std::uint32_t> ends = job.transfers.devices_of(transfer);
  if (ends[0] == ends[1]) {  // it is there already
    state.arrived = step + 1;
    end_task(job, t);
    return false;
  }
  collectives_.ready_all(now_, add_collective(id, index, step));
  return true;
}

CollectiveId ClusterRun::add_collective(std::uint32_t id, std::uint32_t index, std::uint32_t step) {
  JobState& job = jobs_[id];
  const PlanTransfer& transfer = job.transfers.list[index];
  GroupId& group = job.transfer_states[index].group;
  const bool is_message = transfer.operation == Operation::send_recv;
  if (group == kNone) {
    const std::span<const std::uint32_t> members = job.transfers.devices_of(transfer);
    std::vector<std::uint32_t> devices(members.begin(), members.end());
    const auto [known, is_new] = groups_.try_emplace({id, is_message, devices}, kNone);
    if (is_new && (is_message || job.job->copies.devices.empty()))
      known->second = collectives_.add_group(std::move(devices));
    else if (is_new)
      known->second = collectives_.add_folded_group(
          {with_copies(job, transfer), static_cast<std::uint32_t>(devices.size()), job.job->copies.share_outside});
    group = known->second;
  }
  CollectiveSpec spec{.group = group,
                      .operation = transfer.operation,
                      .bytes = transfer.bytes,
                      .protocol = options_.protocol,
                      .priority = transfer.priority};
  if (!is_message) {
    spec.algorithm = options_.algorithm;
    spec.chunk_bytes = options_.chunk_bytes;
    spec.is_fluid = options_.is_fluid;
  }
  owners_.push_back({id, index, step});
  return collectives_.add(spec);
}

// The devices of a collective, and behind them their counterparts in every copy.
std::vector<std::uint32_t> ClusterRun::with_copies(const JobState& job, const PlanTransfer& transfer) {
  const std::span<const std::uint32_t> here = job.transfers.devices_of(transfer);
  std::vector<std::uint32_t> all(here.begin(), here.end());
  const std::size_t local = job.job->devices.size();
  const std::vector<std::uint32_t>& copies = job.job->copies.devices;
  for (std::size_t first = 0; first < copies.size(); first += local)
    for (const TaskId t : job.transfers.tasks_of(transfer))
      all.push_back(copies[first + job.job->plan->graph.tasks[t].device]);
  return all;
}

void ClusterRun::note(const CollectiveReport& report) {
  const Owner& owner = owners_[report.collective];
  JobState& job = jobs_[owner.job];
  const PlanTransfer& transfer = job.transfers.list[owner.transfer];
  const TaskId t = job.transfers.tasks_of(transfer)[report.rank];
  if (devices_[device_of(job, t)].is_stopped()) return;
  if (transfer.operation == Operation::send_recv && report.rank == 1) {
    job.transfer_states[owner.transfer].arrived = owner.step + 1;
    if (job.begun[t] <= owner.step) return;  // its lane has not come to it yet
  }
  end_task(job, t);
}

void ClusterRun::end_task(JobState& job, TaskId t) {
  const std::uint32_t step = job.ended[t]++;
  job.end_ns[t] = job.last_end_ns = now_;
  if (--job.left[step] == 0) job.step_end_ns[step] = now_;
  wake_waiters(job, t);
  LaneState& lane = lanes_[job.lane[t]];
  if (lane.running != t) return;
  lane.running = kNone;
  awake_.push_back(job.lane[t]);
}

void ClusterRun::wake_waiters(JobState& job, TaskId t) {
  std::uint32_t lane = std::exchange(job.first_waiter[t], kNone);
  for (; lane != kNone; lane = lanes_[lane].next_waiter) awake_.push_back(lane);
}

void ClusterRun::make_dirty(std::uint32_t device) {
  if (is_dirty_[device]) return;
  is_dirty_[device] = 1;
  dirty_.push_back(device);
}

void ClusterRun::settle(std::uint32_t device) {
  ended_.clear();
  devices_[device].settle(now_, ended_);
  for (const std::uint32_t lane : ended_) end_task(jobs_[lanes_[lane].job], lanes_[lane].running);
}

void ClusterRun::refresh(std::uint32_t d) {
  is_dirty_[d] = 0;
  BusyDevice& device = devices_[d];
  if (!device.is_stopped()) device.set_rates(now_, options_.overlap_slows ? collectives_.load(d) : DeviceLoad{});
  if (device.link_share() != link_shares_[d]) collectives_.set_speed(now_, d, link_shares_[d] = device.link_share());
  Due& due = due_[d];
  if (due.at_ns == device.next_ns()) return;
  due = {device.next_ns(), due.stamp + 1};
  if (due.at_ns != kNever) device_ends_.push({due.at_ns, d, due.stamp});
}

}  // namespace overtake
