#pragma once
// Pipelines to schedule.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/error.h"
#include "plan/pipeline/named.h"

namespace overtake {

struct Times {
  std::int64_t f, b, w;
  std::int64_t sum() const { return f + b + w; }
};

// All stages alike, each keeping one byte of a micro-batch until its weight gradient is done: the most that a
// schedule's paper counts.
inline PipelineProblem alike(std::uint32_t devices, std::uint32_t micro_batches, Times times,
                             std::uint32_t per_device = 1) {
  PipelineProblem problem{.devices = devices, .micro_batches = micro_batches, .blocks = {}};
  problem.blocks.assign(std::size_t{devices} * per_device, {times.f, times.b, times.w, 1, 1, 0});
  return problem;
}

// Device d runs every stage in 1 / speeds[d] of its time.
inline PipelineProblem with_speeds(PipelineProblem problem, const std::vector<double>& speeds) {
  problem.kind_of_device.clear();
  problem.blocks_of_kind.clear();
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const auto same = std::ranges::find(speeds, speeds[d]) - speeds.begin();
    problem.kind_of_device.push_back(static_cast<std::uint32_t>(same));
    problem.blocks_of_kind.push_back(problem.blocks);
    for (BlockCosts& c : problem.blocks_of_kind.back())
      for (std::int64_t* ns : {&c.forward_ns, &c.input_grad_ns, &c.weight_grad_ns})
        *ns = static_cast<std::int64_t>(static_cast<double>(*ns) / speeds[d]);
  }
  return problem;
}

inline PipelineTimes times_of(std::string_view name, const PipelineProblem& problem,
                              const ScheduleOptions& options = {}) {
  const PipelineSchedule schedule = make_schedule(name, problem, options);
  verify(problem, schedule);
  return evaluate(problem, schedule);
}

inline std::int64_t peak_bytes(const PipelineTimes& times) {
  return std::ranges::max(times.devices, {}, &DeviceTimes::peak_bytes).peak_bytes;
}

// a .. b
inline std::int64_t roll(std::mt19937& random, std::int64_t a, std::int64_t b) {
  return a + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(b - a + 1));
}
inline std::uint32_t roll_count(std::mt19937& random, std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(roll(random, a, b));
}

inline std::string error_of(auto call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace overtake
