#include "cli/rank_traces.h"

#include <fmt/format.h>

#include "comm/gather.h"
#include "report/rank_trace.h"
#include "report/trace_writer.h"

namespace overtake {
namespace {

// Of no other transfers of a training.
constexpr std::uint64_t kClockTag = std::uint64_t{1} << 59, kTraceTag = kClockTag + 1;
constexpr int kUrgent = 1000;

}  // namespace

std::string place_of(int rank, const RunSpec& spec) {
  const auto stages = static_cast<int>(spec.stages);
  if (stages == 1) return fmt::format("rank {}: replica {}", rank, rank);
  if (spec.replicas == 1) return fmt::format("rank {}: stage {}", rank, rank);
  return fmt::format("rank {}: stage {} of replica {}", rank, rank % stages, rank / stages);
}

ClockOffset clock_of_rank(Group& world) { return measure_clock_offset(world, {.tag = kClockTag, .priority = kUrgent}); }

std::string merged_trace(Group& world, const ClockOffset& clock, const RunSpec& spec, const std::string& run,
                         const Plan& plan, std::vector<Trace> traces, const StepTime& step_time) {
  const RankTrace mine{.rank = world.rank(),
                       .run = run,
                       .place = place_of(world.rank(), spec),
                       .plan = &plan,
                       .traces = std::move(traces),
                       .offset_ns = clock.offset_ns,
                       .error_ns = clock.error_ns,
                       .step_time = step_time};
  const std::int64_t origin_ns = least_of_all(world, first_begin_ns(mine), {.tag = kTraceTag});
  const auto texts = gather_texts(world, rank_events(mine, origin_ns), {.tag = kTraceTag});
  return world.rank() == 0 ? file_of_events(texts) : "";
}

}  // namespace overtake
