#include "plan/divide/parallel_options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace overtake {

std::optional<std::uint64_t> memory_cap_of(const RunSpec& spec) {
  if (spec.memory_cap.empty()) return {};
  return static_cast<std::uint64_t>(parse_bytes(spec.memory_cap, "`memory_cap`"));
}

ParallelOptions parallel_options(const RunSpec& spec) {
  ParallelOptions parallel{.replicas = spec.replicas,
                           .stages = spec.stages,
                           .micro_batches = spec.micro_batches,
                           .pipeline = spec.pipeline,
                           .schedule_options = {.chunks = spec.chunks, .group = spec.chunk_stages},
                           .may_repeat_weights = spec.two_way,
                           .reduce = spec.reduce,
                           .bucket_bytes = parse_bytes(spec.bucket, "`bucket`"),
                           .groups = spec.gradient_groups,
                           .lanes = spec.schedule,
                           .memory_cap = memory_cap_of(spec),
                           .sync_batch_norm = spec.sync_batch_norm};
  if (spec.search_tries > 0) parallel.search_tries = spec.search_tries;
  if (!spec.first_k.empty()) parallel.first_k = first_k_from_string(spec.first_k);
  check(parallel);
  if (parallel.is_used()) parallel.clip_norm = spec.clip_norm;
  return parallel;
}

void check(const ParallelOptions& o) {
  if (o.groups > 1 && o.replicas > 1)
    fail_user("`gradient_groups {}`: with `dp {}` every replica is a group already; use one of the two", o.groups,
              o.replicas);
  if (o.micro_batches % o.groups != 0)
    fail_user("`gradient_groups {}`: `micro_batches {}` is no multiple of it", o.groups, o.micro_batches);
  if (o.sync_batch_norm && o.replicas == 1)
    fail_user("`sync_batch_norm`: it is over replicas, and there is one; use `dp`, or leave it out");
  if (o.replicas == 1 && o.chooses_reduction())
    fail_user("`reduce {}`: one replica has nothing to bring together; give `dp`, or leave it out", o.reduce);
  if (o.reduce != "first-k" && o.first_k) fail_user("`first_k {}`: it is for `reduce first-k`", to_string(*o.first_k));
}

}  // namespace overtake
