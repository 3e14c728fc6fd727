#include "train/trials.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/median.h"
#include "base/seconds_since.h"
#include "plan/compile.h"
#include "plan/detail_of.h"
#include "plan/lanes/worthwhile.h"
#include "plan/memory.h"
#include "train/initial_values.h"
#include "train/measured_machine.h"
#include "train/own_part.h"
#include "train/progress_notes.h"
#include "train/tags.h"
#include "train/timing.h"

namespace overtake {
namespace {

constexpr StepArgs kArgs{.step = 0, .seed = 1, .learning_rate = 0.0f};

// Of one device: rounds in which every choice runs a few steps.
constexpr int kTrialSteps = 4, kMostTrialSteps = 100;
constexpr double kRoundMs = 20;  // how long the steps of a round are to take at least

// Of several devices: how long the steps of a choice are to take at least. The second step is the first that has what
// one before it delayed.
constexpr double kTrialMs = 300;
constexpr int kLeastTrial = 3, kMostTrial = 30, kWarmUp = 2;

// Medians of steps run in turn, so that the machine's moods hit all alike.
void try_lanes(Program& p, const Workplace& place) {
  std::vector<Plan> plans;
  for (p.chosen = 0; p.chosen < p.choices.size(); ++p.chosen) plans.push_back(place_memory(detail_of(p).plan));
  p.chosen = 0;
  const auto executor = place.backend->make_executor(std::move(plans));
  fill_to_be_timed(*executor);
  std::vector<PlanChoice>& choices = p.choices;
  const double in_order_ms = static_cast<double>(choices[0].predicted_ns) * 1e-6;
  const int steps = steps_lasting(kRoundMs, in_order_ms, kTrialSteps, kMostTrialSteps);
  std::vector<std::vector<double>> ms(choices.size());
  ProgressNotes notes(place.note);
  for (int round = 0; round <= kTrialRounds; ++round) {
    notes.say([&] { return fmt::format("planning: {} of {} rounds of trials done", round, kTrialRounds + 1); });
    for (std::size_t i = 0; i < choices.size(); ++i) {
      std::vector<double> of_steps = time_steps(*executor, i, steps, kArgs);
      if (round > 0) ms[i].push_back(median(of_steps));  // the first warms up
    }
  }
  for (std::size_t i = 0; i < choices.size(); ++i)
    for (std::size_t round = 0; round < ms[i].size(); ++round) choices[i].won_rounds += ms[i][round] < ms[0][round];
  // A profile may be days old, and machines have faster and slower hours: what is predicted is at today's speed.
  const double speed = median(ms[0]) * 1e6 / static_cast<double>(std::max<std::int64_t>(1, choices[0].predicted_ns));
  for (std::size_t i = 0; i < choices.size(); ++i) {
    choices[i].measured_ns = std::llround(median(ms[i]) * 1e6);
    choices[i].predicted_ns = std::llround(speed * static_cast<double>(choices[i].predicted_ns));
  }
}

// As training does at the end of a step.
float sum_over(Group& world, float x) {
  world.wait(world.all_reduce(&x, 1, DType::f32, {.tag = kTrialTag, .priority = kUrgent}));
  return x;
}

// None if a rank has no room for it under its memory cap.
std::optional<Plan> placed(const Detail& mine, const Program& p, const RankGroups* groups) {
  std::optional<Plan> plan;
  try {
    plan = place_memory(mine.plan, memory_cap_of(p.spec));
  } catch (const UserError&) {
    // Too large; the other ranks must hear of it.
  }
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

// Nanoseconds of a step of the program's choice, by all ranks at once; 0: a rank has no room for it.
std::int64_t time_choice(const Program& p, int steps, const Workplace& place) {
  RankGroups* const groups = place.groups();
  std::optional<Plan> plan = placed(own_part(detail_of(p), place.devices), p, groups);
  if (!plan) return 0;
  std::vector<Plan> plans;
  plans.push_back(std::move(*plan));
  const auto executor = place.backend->make_executor(std::move(plans));
  fill_to_be_timed(*executor);
  std::vector<double> seconds = step_seconds(*executor, steps, groups);
  executor->settle();  // nothing may be under way when it goes
  if (groups != nullptr) groups->world->barrier({.tag = kTrialTag + 1});
  return std::llround(1e9 * median(seconds));
}

void try_divisions(Program& p, const Workplace& place) {
  const int steps =
      steps_lasting(kTrialMs, static_cast<double>(p.choices[0].predicted_ns) * 1e-6, kLeastTrial, kMostTrial);
  ProgressNotes notes(place.note);
  for (p.chosen = 0; p.chosen < p.choices.size(); ++p.chosen) {
    notes.say([&] { return fmt::format("planning: {} of {} plans tried", p.chosen, p.choices.size()); });
    p.choices[p.chosen].measured_ns = time_choice(p, steps, place);
  }
  p.chosen = 0;
  // Ranks measure about the same, and must take the same.
  const auto measured = [&] {
    nlohmann::json ns = nlohmann::json::array();
    for (const PlanChoice& c : p.choices) ns.push_back(c.measured_ns);
    return ns.dump();
  };
  const nlohmann::json ns = parse_json(shared_text(place.groups(), measured));
  for (std::size_t i = 0; i < p.choices.size(); ++i) p.choices[i].measured_ns = ns[i].get<std::int64_t>();
}

}  // namespace

void try_choices(Program& program, const Workplace& place) {
  if (program.choices.size() < 2 || place.devices.device_groups) return;
  program.has_several_devices() ? try_divisions(program, place) : try_lanes(program, place);
  choose(program);
}

}  // namespace overtake
