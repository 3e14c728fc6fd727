// Which choices there are for dividing a step, and which of them are worth a try.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "base/error.h"
#include "plan/divide/side_lanes.h"
#include "plan/divide/step_planner.h"
#include "plan/lanes/worthwhile.h"
#include "plan/pipeline/named.h"
#include "plan/pipeline/search.h"

namespace overtake {
namespace {

constexpr std::size_t kMostCandidates = 3;
// Of a search for what goes on second lanes: how many arrangements it tries, and how many tasks these have together.
constexpr std::uint64_t kMostTries = 200, kMostSearchedTasks = 400'000;
// Those closer to the best one than this part of all layers are no other plan.
constexpr std::uint32_t kPartsOfLayers = 8;

bool is_better(const PlanChoice& a, const PlanChoice& b) {
  return std::pair(!a.fits, a.predicted_ns) < std::pair(!b.fits, b.predicted_ns);
}
// Whether a choice with second lanes should be taken rather than one without.
bool is_worthwhile(const PlanChoice& aside, const PlanChoice& one_lane) {
  return aside.fits &&
         static_cast<double>(aside.predicted_ns) < kWorthwhileTime * static_cast<double>(one_lane.predicted_ns);
}
void sort(std::vector<PlanChoice>& all) { std::ranges::stable_sort(all, is_better); }

}  // namespace

PlanChoice StepPlanner::on_one_lane(PlanChoice choice, PredictedStep* predicted_step) const {
  choice.side = {};
  PredictedStep step = predict(choice);
  OVERTAKE_CHECK(step.result.is_finished || !machine_.options.failures.empty(), "a plan that does not end: {}",
                 step.result.stuck.empty() ? "" : step.result.stuck[0].why);
  choice.predicted_ns = step.step_ns();
  choice.fits = first_without_room(step, machine_) == kNone;
  if (predicted_step != nullptr) *predicted_step = std::move(step);
  return choice;
}

// With all weight gradients on second lanes where that is worthwhile.
PlanChoice StepPlanner::predicted(PlanChoice choice) const {
  PredictedStep step;
  choice = on_one_lane(std::move(choice), &step);
  if (!may_use_side_lanes()) return choice;
  PlanChoice aside = choice;
  aside.side = all_weight_gradients(step.outline);
  note_of_lanes(aside, caps_of_lanes(step));
  return options_.lanes == "ooo" || is_worthwhile(aside, choice) ? aside : choice;
}

// As on one device: a second lane is for tasks that leave something of the device to others, as far as is known.
bool StepPlanner::may_use_side_lanes() const {
  if (!machine_.has_devices() || options_.lanes == "in-order") return false;
  if (options_.lanes == "ooo") return true;
  const auto can_gain = [](const TaskCost& cost) { return cost.load < 1; };
  return machine_.most_lanes > 1 && std::ranges::any_of(work_.blocks.work, can_gain);
}

// The memory that each device may use with a second lane, by what it needs with one.
std::vector<std::int64_t> StepPlanner::caps_of_lanes(const PredictedStep& on_one_lane) const {
  std::vector<std::int64_t> caps;
  for (const std::int64_t peak : peak_memory(on_one_lane)) {
    std::int64_t cap = machine_.memory_of(on_one_lane.devices[caps.size()]);
    if (cap == 0) cap = static_cast<std::int64_t>(options_.memory_cap.value_or(0));
    if (cap == 0) cap = std::llround(kMemoryByDefault * static_cast<double>(peak));
    caps.push_back(cap);
  }
  return caps;
}

// Notes what a choice with second lanes takes, and whether it fits.
void StepPlanner::note_of_lanes(PlanChoice& choice, const std::vector<std::int64_t>& caps) const {
  const PredictedStep step = predict(choice);
  choice.predicted_ns = step.step_ns();
  const std::vector<std::int64_t> peaks = peak_memory(step);
  choice.fits = step.result.is_finished;
  for (std::uint32_t d = 0; d < peaks.size(); ++d) choice.fits = choice.fits && peaks[d] <= caps[d];
}

// On second lanes whatever of the weight gradients is best there. `one_lane` is the same choice without.
PlanChoice StepPlanner::with_searched_lanes(PlanChoice choice, const PlanChoice& one_lane) const {
  const PredictedStep step = predict(one_lane);
  const std::vector<std::int64_t> caps = caps_of_lanes(step);
  const auto step_ns = [&](const SideWork& side) {
    choice.side = side;
    note_of_lanes(choice, caps);
    return choice.fits ? choice.predicted_ns : kUnfit;
  };
  const std::uint64_t tries = std::clamp<std::uint64_t>(kMostSearchedTasks / step.outline.work.size(), 1, kMostTries);
  choice.side = search_side_work(step.outline, step_ns, {.must = options_.lanes == "ooo", .tries = tries});
  note_of_lanes(choice, caps);
  return choice;
}

std::vector<PlanChoice> StepPlanner::choices() const {
  std::vector<PlanChoice> all = divisions();
  if (!may_use_side_lanes() || !machine_.options.failures.empty()) return all;
  const PlanChoice one_lane = on_one_lane(all[0]);
  all[0] = with_searched_lanes(all[0], one_lane);
  const bool is_auto = options_.lanes == "auto";
  if (is_auto && !is_worthwhile(all[0], one_lane)) all[0] = one_lane;
  for (PlanChoice& c : all) {
    // Synchronised norms make devices wait for one another beyond what is simulated.
    if (c.side.tasks.empty() || options_.sync_batch_norm) continue;
    const PredictedStep step = predict(c);
    c.side.waits = waits_for_memory(outline(c), step.result.trace);
  }
  if (is_auto && !all[0].side.tasks.empty()) all.push_back(one_lane);
  return all;
}

std::vector<PlanChoice> StepPlanner::divisions() const {
  std::vector<PlanChoice> all = schedules();
  const bool is_open = options_.searches() || (options_.chooses_reduction() && options_.replicas > 1);
  if (!is_open && !may_use_side_lanes()) return all;
  for (PlanChoice& c : all) c = predicted(std::move(c));
  if (!machine_.has_devices()) {
    all.resize(1);
    return all;
  }
  sort(all);
  if (options_.chooses_reduction() && options_.replicas > 1) all = with_reductions(std::move(all));
  if (all.size() > kMostCandidates) all.resize(kMostCandidates);
  return all;
}

// The one asked for. Of a search, the best by prediction of what it found and of all named ones: the search itself
// knows transfers only as a delay.
std::vector<PlanChoice> StepPlanner::schedules() const {
  const auto choice = [&](PipelineSchedule schedule, std::string reason) {
    return PlanChoice{.name = "",
                      .schedule = std::move(schedule),
                      .reduce = options_.reduce == "auto" ? "by-layer" : options_.reduce,
                      .first_k = options_.first_k.value_or(FirstK{}),
                      .reason = std::move(reason)};
  };
  if (!options_.searches())
    return {choice(
        make_schedule(options_.stages == 1 ? "1f1b" : options_.pipeline, problem_, options_.schedule_options), "")};
  const ScheduleSearchOptions search{.tries = options_.search_tries,
                                     .may_repeat_weights = options_.may_repeat_weights,
                                     .named = options_.schedule_options};
  if (!machine_.has_devices()) {
    FoundSchedule found = search_schedule(problem_, search);
    return {choice(std::move(found.schedule), found.reason)};
  }
  // What does not fit counts only if nothing does.
  const auto step_ns = [&](const PipelineSchedule& schedule) {
    constexpr std::int64_t kTooLarge = std::int64_t{1} << 62;
    const PlanChoice c = predicted(choice(schedule, ""));
    return c.predicted_ns + (c.fits ? 0 : kTooLarge);
  };
  std::vector<PlanChoice> all;
  for (FoundSchedule& found : best_schedules(problem_, search, step_ns, kMostCandidates))
    all.push_back(choice(std::move(found.schedule), std::move(found.reason)));
  return all;
}

// The best schedule with every reduction, the others with the best of these.
std::vector<PlanChoice> StepPlanner::with_reductions(std::vector<PlanChoice> by_schedule) const {
  std::vector<PlanChoice> all = reductions_of(by_schedule[0]);
  sort(all);
  const std::string reduce = all[0].reduce;
  const FirstK first_k = all[0].first_k;
  for (std::size_t i = 1; i < std::min(by_schedule.size(), kMostCandidates); ++i) {
    by_schedule[i].reduce = reduce;
    by_schedule[i].first_k = first_k;
    all.push_back(predicted(std::move(by_schedule[i])));
  }
  sort(all);
  return all;
}

std::vector<PlanChoice> StepPlanner::reductions_of(const PlanChoice& of) const {
  const auto with = [&](const char* reduce, FirstK first_k) {
    PlanChoice other = of;
    other.reduce = reduce;
    other.first_k = first_k;
    return predicted(std::move(other));
  };
  std::vector<PlanChoice> tried;
  std::size_t best = 0;
  const std::uint32_t most = most_first_k(of.schedule.layout);
  search_first_k(most, [&](FirstK first_k) {
    tried.push_back(with("first-k", first_k));
    if (tried.size() > 1 && !is_better(tried.back(), tried[best])) return false;
    best = tried.size() - 1;
    return true;
  });
  std::vector<PlanChoice> all;
  if (tried[best].first_k.k > 0) all.push_back(tried[best]);
  if (options_.reduce == "auto") {
    for (const char* reduce : {"by-layer", "scatter-gather", "buckets"}) all.push_back(with(reduce, {}));
    return all;
  }
  all.push_back(tried[0]);  // k = 0: by layer
  const FirstK best_k = tried[best].first_k;
  const auto is_near = [&](std::int64_t a, std::int64_t b) {
    return std::abs(a - b) < std::max(1u, most / kPartsOfLayers);
  };
  std::erase_if(tried, [&](const PlanChoice& c) {
    return c.first_k.k == 0 || (is_near(c.first_k.k, best_k.k) && is_near(c.first_k.from, best_k.from));
  });
  sort(tried);
  if (!tried.empty()) all.push_back(tried[0]);
  return all;
}

}  // namespace overtake
