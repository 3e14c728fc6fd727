#pragma once
// Plans a training step over several devices: replicas, stages of a pipeline, micro-batches.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "comm/rank_groups.h"
#include "exec/backend.h"
#include "plan/divide/detail.h"
#include "plan/divide/parallel_options.h"
#include "plan/prediction.h"

namespace overtake {

// Where plans are made for, and tried out.
struct ParallelSetting {
  Backend& backend;
  const BackendOptions& devices;  // of the backend: its groups and virtual GPUs
  std::optional<std::uint64_t> memory_cap = {};
  std::function<void(const std::string&)> note = {};
  RankGroups* groups() const { return devices.groups.get(); }
  unsigned threads() const { return devices.threads == 0 ? available_cores() : devices.threads; }
};

struct ParallelPlan {
  Detail whole;
  ParallelOptions options;                 // as they were chosen where they were left open
  std::optional<PredictedStep> predicted;  // if asked for; only rank 0 has it
  std::optional<Plan> placed = {};         // own_part() of it with memory, where it was tried out
};

// `step` is of one micro-batch. Its tasks are measured on the device at hand, and where need be the link between
// ranks; what is left open is chosen by simulating, and confirmed by a few real steps that leave nothing behind. All
// ranks come to the same plan.
ParallelPlan plan_in_parallel(const Graph& step, const ParallelOptions& options, const ParallelSetting& setting);

// Forward alone, of every micro-batch, with the transfers it needs: for evaluation. See schedule_forward.
Plan forward_part(Plan plan);

// What this process does of a plan: its rank's part; without ranks all of it, on one lane unless the devices are parts
// of a GPU.
Detail own_part(const Detail& whole, const BackendOptions& devices);

}  // namespace overtake
