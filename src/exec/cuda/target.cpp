#include "exec/cuda/target.h"

#include "exec/cuda/bindings.h"

namespace overtake {

bool CudaTarget::takes_pitch(const Graph& g, const Task& task, std::size_t operand, std::int64_t pitch) const {
  if (task.op == Op::conv2d) return cuda_bindings::conv2d_takes_pitch(TaskView(g, task, {}), operand, pitch, device_);
  return GpuTarget::takes_pitch(g, task, operand, pitch);
}

std::int64_t CudaTarget::scratch_bytes(const Graph& g, const Task& task) const {
  const auto scratch = cuda_binding(task.op).scratch;
  return scratch == nullptr ? 0 : scratch(TaskView(g, task, {}), device_);
}

}  // namespace overtake
