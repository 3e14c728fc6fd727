#pragma once
// Published schedules and ours, by name.

#include <cstdint>
#include <span>
#include <string_view>

#include "plan/pipeline/schedule.h"

namespace overtake {

struct ScheduleOptions {
  std::uint32_t chunks = 2;  // per device, of interleaved
  std::uint32_t group = 1;   // stages per chunk, of modulo
};

struct NamedSchedule {
  std::string_view name;
  std::string_view text;
  PipelineSchedule (*make)(const PipelineProblem& problem, const ScheduleOptions& options);
  // Published for steps without a barrier between them: compare PipelineTimes::span_ns, not the makespan.
  bool is_without_barrier = false;
};

std::span<const NamedSchedule> named_schedules();

// A user error if there is no such schedule, or none for this problem: too few stages or micro-batches, an odd number
// of devices. The memory cap is not looked at, but for fast-forward and modulo, which can make use of it.
PipelineSchedule make_schedule(std::string_view name, const PipelineProblem& problem,
                               const ScheduleOptions& options = {});

}  // namespace overtake
