#pragma once
// The best schedule that can be found for a problem, over layouts and orders, within the memory cap.

#include <cstdint>
#include <optional>
#include <string>

#include "plan/pipeline/schedule.h"

namespace overtake {

struct ScheduleSearchOptions {
  double seconds = 2;
  std::optional<std::uint64_t> tries = {};  // instead of seconds: the same result every time
  std::uint64_t seed = 1;
  bool may_repeat_weights = true;  // two routes: every chunk on two devices
};

struct FoundSchedule {
  PipelineSchedule schedule;
  PipelineTimes times;
  std::string reason;      // where it comes from: "zb-v", "zb-v, reordered", "interleaved list, reordered"
  std::string best_named;  // of those that fit the cap; empty: none
  std::int64_t best_named_ns = 0;
  std::uint64_t tries = 0;
};

// Never slower (makespan) than any named schedule that fits the cap. A user error if nothing fits it.
FoundSchedule search_schedule(const PipelineProblem& problem, const ScheduleSearchOptions& options = {});

}  // namespace overtake
