#include "machine/roofline.h"

#include <algorithm>

#include "ops/op.h"

namespace overtake {
namespace {

bool is_matrix_op(const Task& task) {
  switch (task.op) {
    case Op::linear:
    case Op::matmul:
    case Op::conv2d:
    case Op::attention:
    case Op::lstm:
    case Op::gru:
      return true;
    default:
      return false;
  }
}

// Views: nothing is computed or moved.
bool is_free(const Task& task) { return task.op == Op::reshape; }

bool has_bf16(const Graph& g, TaskId t) {
  const auto is_bf16 = [&](BufferId b) { return b != kNone && g.buffers[b].dtype == DType::bf16; };
  return std::ranges::any_of(g.reads(t), is_bf16) || std::ranges::any_of(g.writes(t), is_bf16);
}

}  // namespace

std::vector<TaskCost> roofline(const Graph& step, const DeviceType& device, const RooflineOptions& options) {
  std::vector<TaskCost> all(step.tasks.size());
  for (TaskId t = 0; t < step.tasks.size(); ++t) {
    if (is_free(step.tasks[t])) continue;
    const Work work = work_of(step, t);
    const std::int64_t matrix_rate = has_bf16(step, t) ? device.bf16_flops
                                     : options.tf32    ? device.tf32_flops
                                                       : device.f32_flops;
    const double rate = is_matrix_op(step.tasks[t])
                            ? options.matrix_part * static_cast<double>(matrix_rate)
                            : std::max(options.vector_part * static_cast<double>(device.bf16_flops),
                                       options.matrix_part * static_cast<double>(device.f32_flops));
    const double bandwidth = options.bandwidth_part * static_cast<double>(device.memory_bytes_per_s());
    TaskCost& w = all[t];
    w.compute_ns = static_cast<std::int64_t>(1e9 * work.flops / rate);
    w.memory_ns = static_cast<std::int64_t>(1e9 * work.bytes / bandwidth);
    w.ns = std::max(w.compute_ns, w.memory_ns) + options.begin_and_end_ns;
  }
  return all;
}

}  // namespace overtake
