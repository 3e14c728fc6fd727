#pragma once
// What adding up the gradients of micro-batches takes, to be measured on the step of one.

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace overtake {

// The step, and after it sums of every weight's gradient with another buffer of its kind: what unfold() adds for every
// micro-batch but the first. The step's tasks keep their ids.
Graph with_micro_batch_sums(const Graph& step);

// From what the tasks of that graph take, what the tasks of the step take in a step of so many micro-batches, in the
// mean over these: sums count with the task whose gradient they add.
std::vector<std::int64_t> with_sums_counted(const Graph& step, std::vector<std::int64_t> ns,
                                            std::uint32_t micro_batches);

}  // namespace overtake
