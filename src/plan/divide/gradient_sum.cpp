#include "plan/divide/gradient_sum.h"

namespace overtake {

GradientSum gradient_sum(const Graph& step, BufferId gradient, TaskId writer, const Target* target) {
  const Task& task = step.tasks[writer];
  const bool is_matrix = task.op == Op::linear && task.kind == Kind::weight_grad && step.writes(writer)[0] == gradient;
  return {.is_rounded = step.buffers[gradient].dtype != DType::f32,
          .is_added_by_writer = is_matrix && target != nullptr && target->products_add()};
}

}  // namespace overtake
