#include "train/trials.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
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
constexpr int kTrialSteps = 4, kMostTrialSteps = 100, kLeastRounds = 3;
constexpr double kRoundMs = 20;  // how long the steps of a round are to take at least

// Of several devices: how long the steps of a choice are to take at least. The second step is the first that has what
// one before it delayed.
constexpr double kTrialMs = 300;
constexpr int kLeastTrial = 3, kMostTrial = 30, kWarmUp = 2;

// The choice in order, and of the others those that are predicted to be the fastest.
std::vector<std::size_t> most_promising(const std::vector<PlanChoice>& choices, std::size_t count) {
  std::vector<std::size_t> all(choices.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::stable_sort(all.begin() + 1, all.end(),
                   [&](std::size_t a, std::size_t b) { return choices[a].predicted_ns < choices[b].predicted_ns; });
  all.resize(std::min(count, all.size()));
  return all;
}

// Milliseconds of a step of each of the plans, round by round, run in turn so that the machine's moods hit all alike.
// Ends early when the time is over.
std::vector<std::vector<double>> time_in_turn(Executor& executor, const TrialSize& size, const Workplace& place) {
  std::vector<std::vector<double>> ms(size.choices);
  ProgressNotes notes(place.note);
  for (int round = 0; round <= size.rounds && !place.time->is_over(); ++round) {
    notes.say([&] { return fmt::format("planning: {} of {} rounds of trials done", round, size.rounds + 1); });
    std::vector<double> of_round;
    for (std::size_t i = 0; i < size.choices; ++i) {
      std::vector<double> of_steps = time_steps(executor, i, size.steps, kArgs);
      of_round.push_back(median(of_steps));
    }
    // The first warms up.
    for (std::size_t i = 0; i < size.choices && round > 0; ++i) ms[i].push_back(of_round[i]);
  }
  return ms;
}

// Medians of steps. False: there was no time for it, and nothing is known.
bool try_lanes(Program& p, const Workplace& place) {
  std::vector<PlanChoice>& choices = p.choices;
  const double in_order_ms = static_cast<double>(choices[0].predicted_ns) * 1e-6;
  const TrialSize size = affordable_trial(
      {choices.size(), kTrialRounds, steps_lasting(kRoundMs, in_order_ms, kTrialSteps, kMostTrialSteps)},
      1e-3 * in_order_ms, *place.time);
  if (size.choices == 0) return false;
  const std::vector<std::size_t> tried = most_promising(choices, size.choices);
  std::vector<Plan> plans;
  const std::size_t by_prediction = p.chosen;
  for (const std::size_t i : tried) {
    p.chosen = i;
    plans.push_back(place_memory(detail_of(p).plan));
  }
  p.chosen = by_prediction;
  const auto executor = place.backend->make_executor(std::move(plans));
  fill_to_be_timed(*executor);
  std::vector<std::vector<double>> ms = time_in_turn(*executor, size, place);
  const std::size_t rounds = ms[0].size();
  if (rounds < kLeastRounds) return false;
  if (size.choices < choices.size())
    place.time->leave_out(fmt::format("{} of {} schedules were tried", size.choices, choices.size()));
  // A profile may be days old, and machines have faster and slower hours: what is predicted is at today's speed.
  const std::vector<double> in_order = ms[0];
  const double speed = median(ms[0]) * 1e6 / static_cast<double>(std::max<std::int64_t>(1, choices[0].predicted_ns));
  for (PlanChoice& c : choices) c.predicted_ns = std::llround(speed * static_cast<double>(c.predicted_ns));
  for (std::size_t i = 0; i < tried.size(); ++i) {
    std::size_t won = 0;
    for (std::size_t round = 0; round < rounds; ++round) won += ms[i][round] < in_order[round];
    // As of five rounds.
    choices[tried[i]].won_rounds = static_cast<int>(won * kTrialRounds / rounds);
    choices[tried[i]].measured_ns = std::llround(median(ms[i]) * 1e6);
  }
  return true;
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

// What rank 0 says of the time counts: all ranks go on, or none.
bool is_over(const Workplace& place) {
  return shared_text(place.groups(), [&] { return std::string(place.time->is_over() ? "over" : ""); }) == "over";
}

bool try_divisions(Program& p, const Workplace& place) {
  const int steps =
      steps_lasting(kTrialMs, static_cast<double>(p.choices[0].predicted_ns) * 1e-6, kLeastTrial, kMostTrial);
  ProgressNotes notes(place.note);
  for (p.chosen = 0; p.chosen < p.choices.size(); ++p.chosen) {
    if (is_over(place)) {
      place.time->leave_out(fmt::format("{} of {} plans were tried", p.chosen, p.choices.size()));
      break;
    }
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
  return true;
}

}  // namespace

TrialSize affordable_trial(TrialSize wanted, double step_s, const PlanningTime& time) {
  // One more step each: the first of a plan that delays tasks does not count. One more round: the first warms up.
  const auto fits = [&](const TrialSize& s) {
    const int steps = static_cast<int>(s.choices) * (s.rounds + 1) * (s.steps + 1);
    return time.affordable(steps, step_s) == steps;
  };
  for (TrialSize size = wanted; size.choices > 1; --size.choices)
    for (const int rounds : {wanted.rounds, std::min(wanted.rounds, kLeastRounds)})
      for (const int steps : {wanted.steps, 1})
        if (fits({size.choices, rounds, steps})) return {size.choices, rounds, steps};
  return {};
}

void try_choices(Program& program, const Workplace& place) {
  if (program.choices.size() < 2 || place.devices.device_groups) return;
  const bool is_tried = program.has_several_devices() ? try_divisions(program, place) : try_lanes(program, place);
  if (is_tried) return choose(program);
  place.time->leave_out(fmt::format("none of {} schedules was tried", program.choices.size()));
  if (program.spec.schedule == "ooo") return;
  program.chosen = 0;
  program.reason = "schedule: in order; there was no time to try another";
}

}  // namespace overtake
