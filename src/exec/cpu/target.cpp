#include "exec/cpu/target.h"

#include <omp.h>

#include <algorithm>

#include "exec/cpu/conv_plan.h"
#include "exec/cpu/task_view.h"

namespace overtake {
namespace {

// A broadcast operand [C, H, W] lies in memory as a channels-last image only if it stretches over channels or pixels.
bool fits_channels_last(const Graph& g, const Task& task) {
  return std::ranges::all_of(g.reads(task), [&](BufferId b) {
    const Shape& s = g.buffers[b].shape;
    return s.rank != 3 || s[0] == 1 || (s[1] == 1 && s[2] == 1);
  });
}

// What is left of a channels-last image without these axes is in the order of its logical dimensions, which a tensor
// that is no image lies in: the channels are gone, or the pixels are.
bool reduce_keeps_order(const Attrs& reduce) {
  const std::vector<std::int64_t>& axes = reduce.integers("axes");
  const auto has = [&](std::int64_t axis) { return std::ranges::find(axes, axis) != axes.end(); };
  return has(1) || (has(2) && has(3));
}

}  // namespace

// Kernels are looked at on this thread; they must be those that the executor's threads will make.
CpuTarget::CpuTarget() { omp_set_num_threads(1); }

ImageLayout CpuTarget::image_layout(const Graph& g, const Task& task) const {
  switch (task.op) {
    case Op::conv2d:
    case Op::batch_norm:
    case Op::group_norm:
    case Op::max_pool:
    case Op::avg_pool:
    case Op::global_pool:
    case Op::adaptive_pool:
      return ImageLayout::channels_last;
    case Op::add:
    case Op::mul:
      return fits_channels_last(g, task) ? ImageLayout::follow : ImageLayout::plain;
    case Op::expand:
      return g.buffers[g.writes(task)[0]].shape.rank == 4 ? ImageLayout::follow : ImageLayout::plain;
    case Op::reduce:
      return reduce_keeps_order(g.attrs_of(task)) ? ImageLayout::follow : ImageLayout::plain;
    case Op::activation:
    case Op::concat:
    case Op::slice:
    case Op::softmax:
    case Op::dropout:
    case Op::sum:
      return ImageLayout::follow;
    default:
      return ImageLayout::plain;
  }
}

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
