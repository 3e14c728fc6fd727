#include "passes/precision.h"

#include <map>

#include "base/error.h"
#include "rewrite/uses.h"

namespace overtake {
namespace {

// Whether a weight at this place is one of the op's own: its kernels take it as float32, or get a bfloat16 copy where
// their target wants one. A trained tensor at another place is used like an activation.
bool is_own_weight(Op op, std::size_t read) {
  switch (op) {
    case Op::linear:
    case Op::conv2d:
    case Op::group_norm:
    case Op::embedding:
    case Op::lstm:
    case Op::gru:
      return read >= 1;  // after x
    case Op::batch_norm:
      return read >= 2;  // after x and the residual
    case Op::layer_norm:
      return read == 1 || read == 2;  // between x and the residual
    default:
      return false;
  }
}

}  // namespace

Graph use_bf16(Graph g) {
  const Graph old = g;
  g.tasks.clear();
  g.operands.clear();
  std::map<BufferId, BufferId> cast_of;
  for (TaskId t = 0; t < old.tasks.size(); ++t) {
    const Task& task = old.tasks[t];
    std::vector<BufferId> reads(old.reads(t).begin(), old.reads(t).end());
    for (std::size_t i = 0; i < reads.size(); ++i) {
      BufferId& b = reads[i];
      if (b == kNone || g.buffers[b].dtype != DType::f32) continue;
      const Role role = g.buffers[b].role;
      const bool is_target = task.op == Op::mse && role == Role::input;
      const bool is_used_like_activation =
          (role == Role::weight || role == Role::constant) && !is_own_weight(task.op, i);
      if ((role != Role::input || is_target) && !is_used_like_activation) continue;
      BufferId& cast = cast_of.try_emplace(b, kNone).first->second;
      if (cast == kNone) {
        cast = g.add_buffer(old.buffer_name(b) + ".bf16", Shape(g.buffers[b].shape), DType::bf16, Role::activation);
        g.add_task(Kind::forward, Op::reorder, task.layer, 0, {b}, {cast});
      }
      b = cast;
    }
    // The first result, what linear keeps from before its function, and a layer norm's sum are activations; the others
    // are statistics.
    const auto writes = old.writes(t);
    for (std::size_t i = 0; i < writes.size(); ++i) {
      const bool is_activation = i == 0 || (i == 1 && task.op == Op::linear) || (i == 3 && task.op == Op::layer_norm);
      if (writes[i] == kNone) continue;
      Buffer& b = g.buffers[writes[i]];
      if (is_activation && b.role == Role::activation && b.dtype == DType::f32) b.dtype = DType::bf16;
    }
    add_like(g, task, reads, writes);
  }
  return g;
}

}  // namespace overtake
