#include "exec/cuda/program.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

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

std::int64_t nanoseconds_between(const CudaEvent& a, const CudaEvent& b) {
  float ms = 0;
  check_cuda_call(cudaEventElapsedTime(&ms, a.get(), b.get()), "reading a task's time");
  return std::llround(static_cast<double>(ms) * 1e6);
}

}  // namespace

CudaProgram::CudaProgram(const Plan& plan, std::byte* arena, CudaDevice& device, const cuda::StepValues* step_values)
    : plan_(plan), data_(device, step_values), lanes_(lane_order(plan)), order_(one_order(plan)) {
  const Graph& g = plan.graph;
  OVERTAKE_CHECK(plan.offsets.size() == g.buffers.size(), "memory of plan {} is not placed", plan.schedule);
  std::vector<std::byte*> addresses;
  for (const std::uint64_t offset : plan.offsets) addresses.push_back(arena + offset);
  launches_.resize(g.tasks.size());
  for (const TaskId t : order_) {
    const auto bind = cuda_binding(g.tasks[t].op).bind;
    OVERTAKE_CHECK(bind != nullptr, "the GPU has no kernel for op {}", to_string(g.tasks[t].op));
    launches_[t] = bind(TaskView(g, g.tasks[t], addresses), data_);
  }
  lane_of_.resize(g.tasks.size());
  place_of_.resize(g.tasks.size());
  ended_.resize(g.tasks.size());
  for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
    forks_.push_back(make_event(false));
    for (std::uint32_t i = 0; i < lanes_[l].size(); ++i) {
      lane_of_[lanes_[l][i].task] = l;
      place_of_[lanes_[l][i].task] = i;
      for (const TaskId before : lanes_[l][i].waits_for)
        if (!ended_[before]) ended_[before] = make_event(false);
    }
  }
}

void CudaProgram::enqueue_task(TaskId t, cudaStream_t stream) {
  if (!launches_[t]) return;
  try {
    launches_[t](stream);
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& e) {
    OVERTAKE_CHECK(false, "task {} ({}): {}", plan_.graph.task_name(t), to_string(plan_.graph.tasks[t].op), e.what());
  }
}

void CudaProgram::make_trace_events() {
  if (!traced_.empty()) return;
  traced_.resize(launches_.size());
  for (const TaskId t : order_) traced_[t] = {make_event(true), make_event(true)};
  step_begin_ = make_event(true);
  step_end_ = make_event(true);
}

void CudaProgram::enqueue_lanes(const std::vector<cudaStream_t>& streams, const Launch& last, bool traced) {
  // A node of the graph that the host can look at afterwards.
  const auto record_outer = [](const CudaEvent& event, cudaStream_t stream) {
    check_cuda_call(cudaEventRecordWithFlags(event.get(), stream, cudaEventRecordExternal), "recording an event");
  };
  const auto wait = [](cudaStream_t stream, const CudaEvent& event) {
    check_cuda_call(cudaStreamWaitEvent(stream, event.get(), 0), "waiting for an event");
  };
  if (traced) record_outer(step_begin_, streams[0]);
  if (lanes_.size() > 1) record(forks_[0], streams[0]);
  for (std::size_t l = 1; l < lanes_.size(); ++l) wait(streams[l], forks_[0]);
  for (const TaskId t : order_) {
    cudaStream_t stream = streams[lane_of_[t]];
    for (const TaskId before : lanes_[lane_of_[t]][place_of_[t]].waits_for) wait(stream, ended_[before]);
    if (traced) record_outer(traced_[t].begin, stream);
    enqueue_task(t, stream);
    if (traced) record_outer(traced_[t].end, stream);
    if (ended_[t]) record(ended_[t], stream);
  }
  for (std::size_t l = 1; l < lanes_.size(); ++l) {
    record(forks_[l], streams[l]);
    wait(streams[0], forks_[l]);
  }
  if (last) last(streams[0]);
  if (traced) record_outer(step_end_, streams[0]);
}

void CudaProgram::enqueue(const std::vector<cudaStream_t>& streams, const Launch& last) {
  enqueue_lanes(streams, last, false);
}

void CudaProgram::run_task(TaskId t, cudaStream_t stream) {
  enqueue_task(t, stream);
  const cudaError_t error = cudaStreamSynchronize(stream);
  OVERTAKE_CHECK(error == cudaSuccess, "task {} ({}) failed on the GPU: {}", plan_.graph.task_name(t),
                 to_string(plan_.graph.tasks[t].op), cudaGetErrorString(error));
}

void CudaProgram::enqueue_checked(cudaStream_t stream, const Launch& last, bool traced) {
  if (traced) {
    make_trace_events();
    record(step_begin_, stream);
  }
  for (const TaskId t : order_) {
    if (traced) record(traced_[t].begin, stream);
    run_task(t, stream);
    if (traced) record(traced_[t].end, stream);
  }
  if (last) last(stream);
  if (traced) record(step_end_, stream);
}

CudaGraphExec CudaProgram::capture(const std::vector<cudaStream_t>& streams, const Launch& last, bool traced) {
  if (traced) make_trace_events();
  check_cuda_call(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal), "beginning a capture");
  CaptureGuard guard(streams[0]);
  enqueue_lanes(streams, last, traced);
  cudaGraph_t captured = nullptr;
  guard.close();
  check_cuda_call(cudaStreamEndCapture(streams[0], &captured), "ending a capture");
  const CudaGraph graph(captured);
  cudaGraphExec_t exec = nullptr;
  check_cuda_call(cudaGraphInstantiate(&exec, graph.get(), cudaGraphInstantiateFlagUseNodePriority),
                  "making a graph of the step");
  return CudaGraphExec(exec);
}

Trace CudaProgram::trace() const {
  Trace trace;
  trace.step_ns = nanoseconds_between(step_begin_, step_end_);
  for (const TaskId t : order_)
    trace.spans.push_back({t, lane_of_[t], nanoseconds_between(step_begin_, traced_[t].begin),
                           nanoseconds_between(step_begin_, traced_[t].end)});
  return trace;
}

}  // namespace overtake
