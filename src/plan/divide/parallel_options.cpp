#include "plan/divide/parallel_options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace overtake {

void check(const ParallelOptions& o) {
  if (o.groups > 1 && o.replicas > 1)
    fail_user("--gradient-groups {}: with --dp {} every replica is a group already; use one of the two", o.groups,
              o.replicas);
  if (o.micro_batches % o.groups != 0)
    fail_user("--gradient-groups {}: --micro-batches {} is no multiple of it", o.groups, o.micro_batches);
  if (o.sync_batch_norm && o.replicas == 1)
    fail_user("--sync-batch-norm: it is over replicas, and there is one; use --dp, or leave it out");
  constexpr std::string_view kReductions[] = {"buckets", "by-layer", "scatter-gather", "first-k", "auto"};
  if (std::ranges::find(kReductions, o.reduce) == std::end(kReductions))
    fail_user("--reduce {}: no such order; choose {}", o.reduce, fmt::join(kReductions, ", "));
  if (o.replicas == 1 && o.chooses_reduction())
    fail_user("--reduce {}: one replica has nothing to bring together; give --dp, or leave it out", o.reduce);
  if (o.reduce != "first-k" && o.first_k) fail_user("--first-k {}: it is for --reduce first-k", to_string(*o.first_k));
}

}  // namespace overtake
