#pragma once
// How the gradients of micro-batches are added up: as float32, whatever they are, and rounded once, with the last. So a
// batch in parts has a gradient as good as the whole batch's.

#include "overtake/target.h"

namespace overtake {

struct GradientSum {
  bool is_rounded = false;  // the gradient is narrower than float32
  // The product that makes it can add it to what is there. It is then float32 until the last.
  bool is_added_by_writer = false;
};

// Of a weight's gradient in the step, and the task that writes it; no target: nothing adds as it writes.
GradientSum gradient_sum(const Graph& step, BufferId gradient, TaskId writer, const Target* target);

}  // namespace overtake
