#pragma once
// One plan bound to the GPU: its tasks as launches, enqueued lane by lane on streams, or replayed as one CUDA graph.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "exec/arena_view.h"
#include "exec/cuda/binding.h"
#include "exec/cuda/streams.h"
#include "exec/lane_order.h"

namespace overtake {

class BoundPlan {
 public:
  // `arena` is where the plan's offsets count from; `step_values` [2] are this step's and the last one's;
  // `carried_losses` [losses][3] are the metrics of the last step.
  BoundPlan(const Plan& plan, const ArenaView& arena, CudaDevice& device, StreamPool& streams,
            const cuda::StepValues* step_values, float* carried_losses);

  const std::vector<CudaCheck>& checks() const { return data_.checks(); }

  // Enqueues one step on the streams of its lanes; the origin is there when it begins and when it has ended. `last` is
  // enqueued behind everything. Traced: with events around each task.
  void enqueue(Portion portion, const Launch& last, bool traced);
  // The same on the origin alone, task by task with a wait after each, so that an error is that of the task it names.
  void enqueue_checked(Portion portion, const Launch& last, bool traced);
  // What `enqueue` enqueues of the whole, as a graph.
  CudaGraphExec capture(const Launch& last, bool traced);
  // Runs tasks in lanes that do not wait for one another, as a graph, some rounds; the median of when each lane ends.
  // All of a lane are of one device.
  std::vector<std::int64_t> time_lanes(const std::vector<std::vector<TaskId>>& lanes, int rounds);
  // The times of the last traced step, of which this portion ran, and which has ended.
  Trace trace(Portion portion) const;

  // With other ranks, which do the same: every transfer once, on whatever lies there, so that connections are made and
  // kernels loaded before a capture.
  void connect();
  // Runs one task on the origin and waits for it; throws with its name.
  void run_task(TaskId task);

 private:
  struct TaskEvents {
    CudaEvent begin, end;
  };

  // The tasks of a portion in an order in which they can be enqueued.
  struct Entry {
    TaskId task;
    std::uint32_t lane;
    cudaStream_t stream;
    std::vector<TaskId> waits_for;
  };

  void bind_tasks(const ArenaView& arena, const cuda::StepValues* step_values, float* carried_losses);
  std::vector<Entry> entries_of(Portion portion);
  const std::vector<Entry>& entries(Portion portion) const { return entries_[static_cast<std::size_t>(portion)]; }
  void enqueue_task(TaskId task, cudaStream_t stream);
  // Streams begin with the origin, and the origin goes on when they have ended; those that are the origin do anyway.
  void fork(const std::vector<cudaStream_t>& streams);
  void join(const std::vector<cudaStream_t>& streams);
  void make_trace_events();

  const Plan& plan_;
  BoundPlanData data_;
  StreamPool& pool_;
  std::vector<cudaStream_t> streams_;          // of its lanes, each once
  std::vector<Launch> launches_;               // by task
  std::array<std::vector<Entry>, 3> entries_;  // by portion
  std::vector<CudaEvent> ended_;               // by task, where another lane waits for it
  CudaEvent fork_;
  std::vector<CudaEvent> joins_;     // by stream
  std::vector<TaskEvents> traced_;   // by task
  CudaEvent step_begin_, step_end_;  // of traced steps
};

}  // namespace overtake
