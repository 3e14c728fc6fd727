#pragma once
// Plans a training step over several devices: replicas, stages of a pipeline, micro-batches.

#include <cstdint>
#include <optional>
#include <string>

#include "comm/rank_groups.h"
#include "exec/backend.h"
#include "passes/parallel/unfold.h"

namespace overtake {

struct ParallelOptions {
  std::uint32_t replicas = 1, stages = 1, micro_batches = 1;  // these are of one replica
  std::string pipeline = "1f1b";                              // a schedule of passes/pipeline/named.h, or search
  double search_seconds = 2;
  std::string reduce = "buckets";  // or by-layer, scatter-gather, first-k
  std::uint32_t first_k = 0;
  std::int64_t bucket_bytes = 25 << 20;
  std::uint32_t groups = 1;  // see UnfoldOptions; with one replica only
  bool is_used() const { return replicas > 1 || stages > 1 || micro_batches > 1; }
  std::uint32_t devices() const { return replicas * stages; }
};

// User errors name the flag.
void check(const ParallelOptions& options);

struct ParallelPlan {
  UnfoldedPlan whole;
  ClusterPlan cluster;  // the same as blocks, for the simulator
};

// `step` is of one micro-batch. Its tasks are measured on the device at hand, by rank 0 where there are groups; all
// ranks then come to the same plan.
ParallelPlan plan_in_parallel(const Graph& step, Backend& backend, const ParallelOptions& options,
                              const RankGroups* groups);

// Forward alone, of every micro-batch, with the transfers it needs: for evaluation. See schedule_forward.
Plan forward_part(Plan plan);

}  // namespace overtake
