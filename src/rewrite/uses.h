#pragma once
// Who writes and who reads what, for passes that look for neighbours; and tasks of the old graph put into the new one.

#include <span>
#include <vector>

#include "overtake/graph.h"

namespace overtake {

struct Uses {
  explicit Uses(const Graph& graph);
  std::vector<TaskId> writer;          // per buffer: the task that makes it in this step; kNone for what lives across
  std::vector<std::uint32_t> readers;  // per buffer: how many operands it is
};

// A task like `like`, on its device and for its micro-batch, with other operands.
TaskId add_like(Graph& graph, const Task& like, std::span<const BufferId> reads, std::span<const BufferId> writes);

}  // namespace overtake
