#pragma once
// One plan bound to the GPU: its tasks as launches, enqueued lane by lane on streams, or replayed as one CUDA graph.

#include <functional>
#include <string>
#include <vector>

#include "exec/cuda/binding.h"
#include "exec/lane_order.h"

namespace overtake {

class CudaProgram {
 public:
  // `arena` is where the plan's offsets count from.
  CudaProgram(const Plan& plan, std::byte* arena, CudaDevice& device, const cuda::StepValues* step_values);

  const std::vector<CudaCheck>& checks() const { return data_.checks(); }

  // Enqueues one step on the streams, one per lane; the first is there when it begins and when it has ended. `last` is
  // enqueued behind everything.
  void enqueue(const std::vector<cudaStream_t>& streams, const Launch& last);
  // The same, task by task with a wait after each, so that an error is that of the task it names.
  // Traced: with events around each task.
  void enqueue_checked(cudaStream_t stream, const Launch& last, bool traced);
  // What `enqueue` enqueues, as a graph. Traced: with events around each task.
  CudaGraphExec capture(const std::vector<cudaStream_t>& streams, const Launch& last, bool traced);
  // The times of the last traced step, which has ended.
  Trace trace() const;

  // Runs one task and waits for it; throws with its name.
  void run_task(TaskId task, cudaStream_t stream);

 private:
  struct TaskEvents {
    CudaEvent begin, end;
  };

  void enqueue_task(TaskId task, cudaStream_t stream);
  void enqueue_lanes(const std::vector<cudaStream_t>& streams, const Launch& last, bool traced);
  void make_trace_events();

  const Plan& plan_;
  CudaProgramData data_;
  std::vector<Launch> launches_;  // by task
  std::vector<std::vector<LaneEntry>> lanes_;
  std::vector<TaskId> order_;
  std::vector<std::uint32_t> lane_of_, place_of_;  // by task
  std::vector<CudaEvent> ended_;                   // by task, where another lane waits for it
  std::vector<CudaEvent> forks_;                   // by lane
  std::vector<TaskEvents> traced_;                 // by task
  CudaEvent step_begin_, step_end_;                // of traced steps
};

}  // namespace overtake
