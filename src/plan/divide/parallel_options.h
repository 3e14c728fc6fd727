#pragma once
// How a step is divided over devices, and what of that is left open.

#include <cstdint>
#include <optional>
#include <string>

#include "overtake/run_spec.h"
#include "plan/divide/first_k.h"
#include "plan/pipeline/named.h"

namespace overtake {

struct ParallelOptions {
  std::uint32_t replicas = 1, stages = 1, micro_batches = 1;  // these are of one replica
  std::string pipeline = "1f1b";                              // a schedule of plan/pipeline/named.h, or search
  ScheduleOptions schedule_options = {};                      // of that schedule
  std::optional<std::uint64_t> search_tries = {};  // schedules a search tries; none: what takes about two seconds
  bool may_repeat_weights = false;                 // a search may put a layer on two devices, as dualpipe does
  std::string reduce = "buckets";                  // or by-layer, scatter-gather, first-k; auto: the fastest of them
  std::optional<FirstK> first_k = {};              // of first-k; none: the fastest
  std::int64_t bucket_bytes = 25 << 20;
  std::uint32_t groups = 1;  // see DetailOptions; with one replica only
  // Of every device: in-order: one; ooo: weight gradients on a second one; auto: whichever is faster.
  std::string lanes = "auto";
  std::optional<std::uint64_t> memory_cap = {};  // of a device, in bytes; none: what it has
  bool sync_batch_norm = false;
  double clip_norm = 0;  // over all devices; the step has no clipping of its own
  bool is_used() const { return replicas > 1 || stages > 1 || micro_batches > 1; }
  std::uint32_t devices() const { return replicas * stages; }
  bool searches() const { return stages > 1 && pipeline == "search"; }
  bool chooses_reduction() const { return reduce == "auto" || (reduce == "first-k" && !first_k); }
};

// The most memory of a device that a spec allows, in bytes; none: what the device has.
std::optional<std::uint64_t> memory_cap_of(const RunSpec& spec);

// User errors name the field.
ParallelOptions parallel_options(const RunSpec& spec);
void check(const ParallelOptions& options);

}  // namespace overtake
