#pragma once
// Batch norms over the micro-batches that all replicas take at the same time.

#include "overtake/target.h"
#include "plan/divide/detail.h"

namespace overtake {

// The statistics of a batch norm in training are those of the same micro-batch of all replicas together, and so are the
// two sums that its input gradient needs; running statistics are then the same on all. Each replica tells the others
// its own moments, and all put them together in the order of replicas. A user error if there is no batch norm.
Detail synchronise_batch_norms(Detail plan, const Target& target);

// For evaluation, which takes running statistics: a batch norm as it was before.
void drop_moments(Graph& graph, TaskId task);

}  // namespace overtake
