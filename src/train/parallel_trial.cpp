#include "train/parallel_trial.h"

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/median.h"
#include "base/seconds_since.h"
#include "plan/memory.h"
#include "train/planning.h"
#include "train/tags.h"
#include "train/timing.h"

namespace overtake {
namespace {

constexpr int kWarmUp = 2;  // the second step is the first with what one before it delayed
constexpr StepArgs kArgs{.step = 0, .seed = 1, .learning_rate = 0.0f};

// As training does at the end of a step.
float sum_over(Group& world, float x) {
  world.wait(world.all_reduce(&x, 1, DType::f32, {.tag = kTrialTag, .priority = kUrgent}));
  return x;
}

std::optional<Plan> placed(const Detail& mine, const ParallelSetting& setting) {
  std::optional<Plan> plan;
  try {
    plan = place_memory(mine.plan, setting.memory_cap);
  } catch (const UserError&) {
    // Too large; the others must hear of it.
  }
  const RankGroups* const groups = setting.groups();
  if (groups != nullptr && sum_over(*groups->world, plan ? 0.0f : 1.0f) > 0) plan.reset();
  return plan;
}

std::vector<double> step_seconds(Executor& executor, int steps, const RankGroups* groups) {
  std::vector<double> seconds;
  if (groups == nullptr) {
    for (const double ms : time_steps(executor, 0, steps, kArgs)) seconds.push_back(1e-3 * ms);
    return seconds;
  }
  for (int i = 0; i < kWarmUp + steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    executor.run(0, kArgs);
    sum_over(*groups->world, 0);
    if (i >= kWarmUp) seconds.push_back(seconds_since(begin));
  }
  return seconds;
}

}  // namespace

std::optional<TimedPlan> time_plan(const Detail& whole, int steps, const ParallelSetting& setting) {
  RankGroups* const groups = setting.groups();
  std::optional<Plan> plan = placed(own_part(whole, setting.devices), setting);
  if (!plan) return {};
  std::vector<Plan> plans;
  plans.push_back(std::move(*plan));
  const auto executor = setting.backend.make_executor(std::move(plans));
  fill_to_be_timed(*executor);
  std::vector<double> seconds = step_seconds(*executor, steps, groups);
  executor->settle();  // nothing may be under way when it goes
  if (groups != nullptr) groups->world->barrier({.tag = kTrialTag + 1});
  return TimedPlan{std::llround(1e9 * median(seconds)), executor->plan(0)};
}

}  // namespace overtake
