#include "exec/cpu/target.h"

#include <omp.h>

#include "exec/cpu/binding.h"
#include "exec/cpu/conv_plan.h"

namespace overtake {
// Kernels are looked at on this thread; they must be those that the executor's threads will make.
CpuTarget::CpuTarget() { omp_set_num_threads(1); }

std::optional<OperandFormat> CpuTarget::weight_format(const Graph& g, const Task& task, std::size_t operand) const {
  // Operand places: forward (x, w, ...), input_grad (dy, w), weight_grad (x, dy; dw, dbias) of conv2d and linear.
  const bool is_weight = operand == (task.kind == Kind::weight_grad ? 2u : 1u);
  if (task.op == Op::conv2d && is_weight) {
    const DType wanted = task.kind == Kind::weight_grad ? DType::f32 : g.buffers[g.reads(task)[0]].dtype;
    return OperandFormat{wanted, conv_weight_layout(g, task)};
  }
  if (task.kind == Kind::weight_grad) return {};
  const bool is_recurrent = task.op == Op::lstm || task.op == Op::gru;
  const bool is_recurrent_weight =
      is_recurrent && (task.kind == Kind::forward ? operand == 1 || operand == 2 : operand == 0 || operand == 1);
  if ((task.op == Op::linear && is_weight) || is_recurrent_weight) {
    const BufferId activation = is_recurrent && task.kind == Kind::input_grad ? g.writes(task)[0] : g.reads(task)[0];
    const Buffer& w = g.buffers[g.reads(task)[operand]];
    return OperandFormat{g.buffers[activation].dtype, plain_layout(w.shape.rank)};
  }
  return {};
}

std::int64_t CpuTarget::scratch_bytes(const Graph& g, const Task& task) const {
  const auto scratch = cpu_binding(task.op).scratch;
  return scratch == nullptr ? 0 : scratch(TaskView(g, task, {}));
}

bool cpu_has_bf16() { return kernels::has_fast_bf16(); }

}  // namespace overtake
