#pragma once
// The best schedule that can be found for a problem, over layouts and orders, within the memory caps. The same problem
// and options give the same schedule in every call and on every machine.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/pipeline/named.h"
#include "plan/pipeline/schedule.h"

namespace overtake {

struct ScheduleSearchOptions {
  std::optional<std::uint64_t> tries = {};  // schedules to build and time; none: usual_tries
  std::uint64_t seed = 1;
  // Two routes, every chunk on two devices, dualpipe among them. The sums of their gradients count
  // (PipelineProblem::copy_sum_ns).
  bool may_repeat_weights = false;
  ScheduleOptions named = {};  // named schedules are also tried with these
};

// What takes about two seconds on one core of a server of 2020 or later, more blocks meaning fewer tries.
std::uint64_t usual_tries(const PipelineProblem& problem);

struct FoundSchedule {
  PipelineSchedule schedule;
  PipelineTimes times;
  std::string reason;      // where it comes from: "zb-v", "zb-v, reordered", "interleaved list, reordered"
  std::string best_named;  // of those that fit the caps; empty: none
  std::int64_t best_named_ns = 0;
  std::int64_t predicted_ns = 0;  // of best_schedule: what its `predict` says
  std::uint64_t tries = 0;
};

// Never slower (makespan) than any named schedule that fits the caps. A user error if nothing fits them.
FoundSchedule search_schedule(const PipelineProblem& problem, const ScheduleSearchOptions& options = {});

// Several to choose from: at most `count` that the search found, of different layouts, the first of them
// search_schedule's; then every named schedule that fits the caps and is not among these.
std::vector<FoundSchedule> search_schedules(const PipelineProblem& problem, const ScheduleSearchOptions& options,
                                            std::size_t count);

// The nanoseconds of a step by a closer model than the search's own.
using PredictStep = std::function<std::int64_t(const PipelineSchedule& schedule)>;

// The best by `predict` of what is found and of all named schedules that fit the caps, then improved by the same
// measure. Never slower by it than any of these; of equal ones the first of search_schedules.
FoundSchedule best_schedule(const PipelineProblem& problem, const ScheduleSearchOptions& options,
                            const PredictStep& predict);
// The same one, and after it the next best by `predict`; at most `count`.
std::vector<FoundSchedule> best_schedules(const PipelineProblem& problem, const ScheduleSearchOptions& options,
                                          const PredictStep& predict, std::size_t count);

}  // namespace overtake
