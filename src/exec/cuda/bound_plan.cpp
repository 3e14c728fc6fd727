#include "exec/cuda/bound_plan.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/median.h"

namespace overtake {
namespace {

// Ends a capture that was given up, so that the stream can be used again.
class CaptureGuard {
 public:
  explicit CaptureGuard(cudaStream_t stream) : stream_(stream) {}
  ~CaptureGuard() {
    if (!is_open_) return;
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  void close() { is_open_ = false; }

 private:
  cudaStream_t stream_;
  bool is_open_ = true;
};

using CudaGraph = CudaOwned<cudaGraph_t, cudaGraphDestroy>;

void record(const CudaEvent& event, cudaStream_t stream) {
  check_cuda_call(cudaEventRecord(event.get(), stream), "recording an event");
}

// What `enqueue` puts on the stream and those that fork from it, as a graph.
template <class Enqueue>
CudaGraphExec capture_on(cudaStream_t stream, const Enqueue& enqueue) {
  check_cuda_call(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
  CaptureGuard guard(stream);
  enqueue();
  cudaGraph_t captured = nullptr;
  guard.close();
  check_cuda_call(cudaStreamEndCapture(stream, &captured), "ending a capture");
  const CudaGraph graph(captured);
  cudaGraphExec_t exec = nullptr;
  check_cuda_call(cudaGraphInstantiate(&exec, graph.get(), cudaGraphInstantiateFlagUseNodePriority),
                  "making a graph of the step");
  return CudaGraphExec(exec);
}

// For the host to look at afterwards, also in a graph.
void record_for_host(const CudaEvent& event, cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda_call(cudaStreamIsCapturing(stream, &status), "recording an event");
  const unsigned flags = status == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
  check_cuda_call(cudaEventRecordWithFlags(event.get(), stream, flags), "recording an event");
}

void wait(cudaStream_t stream, const CudaEvent& event) {
  check_cuda_call(cudaStreamWaitEvent(stream, event.get(), 0), "waiting for an event");
}

}  // namespace

BoundPlan::BoundPlan(const Plan& plan, const ArenaView& arena, CudaDevice& device, StreamPool& streams,
                     const cuda::StepValues* step_values, float* carried_losses)
    : plan_(plan), data_(device), pool_(streams), fork_(make_event(false)) {
  OVERTAKE_CHECK(plan.offsets.size() == plan.graph.buffers.size(), "memory of plan {} is not placed", plan.schedule);
  OVERTAKE_CHECK(plan.joins.empty(), "the GPU has no kernels for two tasks at once");
  for (const Portion portion : {Portion::step_and_delayed, Portion::step, Portion::delayed})
    entries_[static_cast<std::size_t>(portion)] = entries_of(portion);
  for (const Entry& entry : entries(Portion::step_and_delayed))
    if (std::ranges::find(streams_, entry.stream) == streams_.end()) streams_.push_back(entry.stream);
  bind_tasks(arena, step_values, carried_losses);
  ended_.resize(plan.graph.tasks.size());
  for (const auto& list : entries_)
    for (const Entry& entry : list)
      for (const TaskId before : entry.waits_for)
        if (!ended_[before]) ended_[before] = make_event(false);
}

void BoundPlan::bind_tasks(const ArenaView& arena, const cuda::StepValues* step_values, float* carried_losses) {
  const Graph& g = plan_.graph;
  std::vector<std::byte*> addresses;
  for (const std::uint64_t offset : plan_.offsets) addresses.push_back(arena.at(offset));
  // Delayed updates stand or fall with the losses of their own step.
  std::vector<std::byte*> delayed_addresses = addresses;
  for (std::size_t i = 0; i < g.losses.size(); ++i)
    delayed_addresses[g.losses[i]] = reinterpret_cast<std::byte*>(carried_losses + 3 * i);
  launches_.resize(g.tasks.size());
  for (const Entry& entry : entries(Portion::step_and_delayed)) {
    const Task& task = g.tasks[entry.task];
    const auto bind = cuda_binding(task.op).bind;
    OVERTAKE_CHECK(bind != nullptr, "the GPU has no kernel for op {}", to_string(task.op));
    data_.set_step_values(step_values + (task.is_delayed ? 1 : 0));
    launches_[entry.task] = bind(TaskView(g, task, task.is_delayed ? delayed_addresses : addresses), data_);
  }
}

std::vector<BoundPlan::Entry> BoundPlan::entries_of(Portion portion) {
  const LaneOrder lanes = lane_order(plan_, portion);
  std::vector<std::pair<std::uint32_t, const LaneEntry*>> of_task(plan_.graph.tasks.size());
  for (std::uint32_t l = 0; l < lanes.size(); ++l)
    for (const LaneEntry& entry : lanes[l]) of_task[entry.task] = {l, &entry};
  const std::vector<Track> tracks = tracks_of(plan_, data_.device().ranks());
  std::vector<Entry> entries;
  for (const TaskId t : one_order(plan_, portion))
    entries.push_back({t, of_task[t].first, pool_.get(tracks[t]), of_task[t].second->waits_for});
  return entries;
}

void BoundPlan::enqueue_task(TaskId t, cudaStream_t stream) {
  if (!launches_[t]) return;
  try {
    launches_[t](stream);
  } catch (const UserError&) {
    throw;
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& e) {
    OVERTAKE_CHECK(false, "task {} ({}): {}", plan_.graph.task_name(t), to_string(plan_.graph.tasks[t].op), e.what());
  }
}

void BoundPlan::make_trace_events() {
  if (!traced_.empty()) return;
  traced_.resize(launches_.size());
  for (const Entry& entry : entries(Portion::step_and_delayed))
    traced_[entry.task] = {make_event(true), make_event(true)};
  step_begin_ = make_event(true);
  step_end_ = make_event(true);
}

void BoundPlan::fork(const std::vector<cudaStream_t>& streams) {
  record(fork_, pool_.origin());
  for (cudaStream_t stream : streams)
    if (stream != pool_.origin()) wait(stream, fork_);
}

void BoundPlan::join(const std::vector<cudaStream_t>& streams) {
  while (joins_.size() < streams.size()) joins_.push_back(make_event(false));
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (streams[i] == pool_.origin()) continue;
    record(joins_[i], streams[i]);
    wait(pool_.origin(), joins_[i]);
  }
}

void BoundPlan::enqueue(Portion portion, const Launch& last, bool traced) {
  if (traced) {
    make_trace_events();
    record_for_host(step_begin_, pool_.origin());
  }
  fork(streams_);
  for (const Entry& entry : entries(portion)) {
    for (const TaskId before : entry.waits_for) wait(entry.stream, ended_[before]);
    if (traced) record_for_host(traced_[entry.task].begin, entry.stream);
    enqueue_task(entry.task, entry.stream);
    if (traced) record_for_host(traced_[entry.task].end, entry.stream);
    if (ended_[entry.task]) record(ended_[entry.task], entry.stream);
  }
  join(streams_);
  if (last) last(pool_.origin());
  if (traced) record_for_host(step_end_, pool_.origin());
}

void BoundPlan::run_task(TaskId t) {
  enqueue_task(t, pool_.origin());
  const cudaError_t error = data_.device().ranks().wait(pool_.origin());
  OVERTAKE_CHECK(error == cudaSuccess, "task {} ({}) failed on the GPU: {}", plan_.graph.task_name(t),
                 to_string(plan_.graph.tasks[t].op), cudaGetErrorString(error));
}

void BoundPlan::connect() {
  for (const Entry& entry : entries(Portion::step_and_delayed))
    if (plan_.graph.tasks[entry.task].op == Op::transfer) run_task(entry.task);
}

void BoundPlan::enqueue_checked(Portion portion, const Launch& last, bool traced) {
  cudaStream_t stream = pool_.origin();
  if (traced) {
    make_trace_events();
    record(step_begin_, stream);
  }
  for (const Entry& entry : entries(portion)) {
    if (traced) record(traced_[entry.task].begin, stream);
    run_task(entry.task);
    if (traced) record(traced_[entry.task].end, stream);
  }
  if (last) last(stream);
  if (traced) record(step_end_, stream);
}

CudaGraphExec BoundPlan::capture(const Launch& last, bool traced) {
  return capture_on(pool_.origin(), [&] { enqueue(Portion::step_and_delayed, last, traced); });
}

std::vector<std::int64_t> BoundPlan::time_lanes(const std::vector<std::vector<TaskId>>& lanes, int rounds) {
  std::vector<cudaStream_t> streams;
  std::map<std::uint16_t, std::uint16_t> lanes_of;  // how many, by device
  for (const auto& lane : lanes) {
    const std::uint16_t device = lane.empty() ? std::uint16_t{0} : plan_.graph.tasks[lane[0]].device;
    streams.push_back(pool_.get({Track::Use::lane, device, lanes_of[device]++}));
  }
  const CudaEvent begin = make_event(true);
  std::vector<CudaEvent> ends;
  for (std::size_t l = 0; l < lanes.size(); ++l) ends.push_back(make_event(true));
  const CudaGraphExec graph = capture_on(pool_.origin(), [&] {
    record_for_host(begin, pool_.origin());
    fork(streams);
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      for (const TaskId t : lanes[l]) enqueue_task(t, streams[l]);
      record_for_host(ends[l], streams[l]);
    }
    join(streams);
  });
  std::vector<std::vector<std::int64_t>> samples(lanes.size());
  for (int i = 0; i <= rounds; ++i) {
    check_cuda_call(cudaGraphLaunch(graph.get(), pool_.origin()), "launching tasks to be timed");
    check_cuda_call(cudaStreamSynchronize(pool_.origin()), "timing tasks");
    for (std::size_t l = 0; l < lanes.size() && i > 0; ++l)
      samples[l].push_back(lanes[l].empty() ? 0 : nanoseconds_between(begin, ends[l]));
  }
  std::vector<std::int64_t> medians;
  for (auto& lane : samples) medians.push_back(median(lane));
  return medians;
}

Trace BoundPlan::trace(Portion portion) const {
  Trace trace;
  trace.step_ns = nanoseconds_between(step_begin_, step_end_);
  for (const Entry& entry : entries(portion))
    trace.spans.push_back({entry.task, entry.lane, nanoseconds_between(step_begin_, traced_[entry.task].begin),
                           nanoseconds_between(step_begin_, traced_[entry.task].end)});
  return trace;
}

}  // namespace overtake
