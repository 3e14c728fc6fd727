#pragma once
// What adding up the gradients of micro-batches takes, to be measured on the step of one.

#include <cstdint>
#include <vector>

#include "overtake/target.h"

namespace overtake {

// The step, and after it, for every weight, what make_detail() has for micro-batches but the first: the sum of its
// gradient with another buffer, or the task that makes it once more, adding it. The step's tasks keep their ids.
Graph with_micro_batch_sums(const Graph& step, const Target& target);

// From what the tasks of that graph take, what the tasks of the step take in a step of so many micro-batches, in the
// mean over these: sums count with the task whose gradient they add.
std::vector<std::int64_t> with_sums_counted(const Graph& step, const std::vector<std::int64_t>& ns,
                                            std::uint32_t micro_batches, const Target& target);

}  // namespace overtake
