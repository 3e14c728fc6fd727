#include "plan/pipeline/search.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/units.h"
#include "plan/pipeline/cut.h"
#include "plan/pipeline/order_search.h"
#include "plan/pipeline/rule_search.h"

namespace overtake {
namespace {

// So many can all be looked at.
constexpr std::size_t kFewLayouts = 64;
// Where devices differ, each layout of alike ones is several.
constexpr std::size_t kFewUnequalLayouts = 256;
// Chunks per device beyond which nothing more is tried.
constexpr std::uint32_t kMostChunks = 4;

// Of usual_tries: blocks to time, and how many tries there are at least and at most.
constexpr double kUsualWork = 60e6, kLeastTries = 200, kMostTries = 100'000;

// Of best_schedule: the part of its tries before it predicts, how many found schedules it predicts, and how often it
// goes on from the best.
constexpr double kFirstPart = 0.8;
constexpr std::size_t kFoundToPredict = 8, kRoundsToPredict = 8;

constexpr std::string_view kReordered = ", reordered", kList = " list";

std::string reordered(std::string_view name) {
  return name.ends_with(kReordered) ? std::string(name) : fmt::format("{}{}", name, kReordered);
}
// Whether a schedule with this reason is none of the named ones as they are.
bool is_found(std::string_view reason) { return reason.ends_with(kReordered) || reason.ends_with(kList); }

struct Candidate {
  PipelineSchedule schedule;
  std::int64_t ns = std::numeric_limits<std::int64_t>::max();
};

struct NamedRuleSearch {
  std::string layout;
  RuleSearch search;
};

class ScheduleSearch {
 public:
  ScheduleSearch(const PipelineProblem& problem, const ScheduleSearchOptions& options)
      : problem_(problem), options_(options), budget_(options.tries.value_or(usual_tries(problem)), options.seed) {}

  void run() {
    try_named();
    list_layouts();
    improve();
  }

  FoundSchedule best() const { return found(best_); }

  // At most `count` of different layouts, the best first, and the named ones.
  std::vector<FoundSchedule> several(std::size_t count) {
    std::ranges::stable_sort(tried_, {}, &Candidate::ns);
    std::vector<const Candidate*> chosen;
    const auto add = [&](auto are_close) {
      for (const Candidate& c : tried_) {
        const auto is_close = [&](const Candidate* other) {
          return other->schedule.layout == c.schedule.layout || are_close(other->schedule, c.schedule);
        };
        if (chosen.size() < count && std::ranges::none_of(chosen, is_close)) chosen.push_back(&c);
      }
    };
    // First those that come from elsewhere, then those with other devices for their chunks, then other cuts.
    add([](const PipelineSchedule& a, const PipelineSchedule& b) { return a.name == b.name; });
    add([](const PipelineSchedule& a, const PipelineSchedule& b) { return a.layout.device_of == b.layout.device_of; });
    add([](const PipelineSchedule&, const PipelineSchedule&) { return false; });
    std::vector<FoundSchedule> all;
    for (const Candidate* c : chosen) all.push_back(found(*c));
    for (const Candidate& c : named_) {
      const auto is_same = [&](const FoundSchedule& f) {
        return f.schedule.layout == c.schedule.layout && f.schedule.orders == c.schedule.orders;
      };
      if (std::ranges::none_of(all, is_same)) all.push_back(found(c));
    }
    return all;
  }

 private:
  // Every named schedule, with all options that make a difference.
  void try_named() {
    const auto per_device = static_cast<std::uint32_t>(problem_.blocks.size()) / problem_.devices;
    for (const NamedSchedule& named : named_schedules()) {
      std::vector<ScheduleOptions> variants{{}};
      if (named.name == "interleaved") {
        variants.clear();
        for (std::uint32_t v = 2; v <= std::min(per_device, kMostChunks); ++v)
          variants.push_back({.chunks = v, .group = 1});
        if (options_.named.chunks > kMostChunks) variants.push_back(options_.named);
      }
      if (named.name == "modulo") {
        variants.clear();
        for (std::uint32_t g = 1; g <= per_device; g *= 2) variants.push_back({.chunks = 2, .group = g});
        if (!std::has_single_bit(options_.named.group)) variants.push_back(options_.named);
      }
      for (const ScheduleOptions& options : variants) {
        try {
          add_named(make_schedule(named.name, problem_, options));
        } catch (const UserError&) {
          // Not for so many devices, stages or micro-batches.
        }
      }
    }
  }

  void add_named(PipelineSchedule schedule) {
    if (schedule.layout.device_of.size() > 1 && !options_.may_repeat_weights) return;
    const PipelineTimes times = evaluate(problem_, schedule);
    std::int64_t peak = 0;
    bool fits = true;
    for (std::uint32_t d = 0; d < problem_.devices; ++d) {
      peak = std::max(peak, times.devices[d].peak_bytes);
      fits = fits && times.devices[d].peak_bytes <= problem_.cap(d);
    }
    least_bytes_ = std::min(least_bytes_, peak);
    if (times.is_stuck || !fits) return;
    named_.push_back({std::move(schedule), times.makespan_ns});
    if (times.makespan_ns < best_named_.ns) best_named_ = named_.back();
  }

  // Layouts that can be kept in memory, each with the best of some plain rules.
  void list_layouts() {
    const auto n = static_cast<std::uint32_t>(problem_.blocks.size());
    const std::uint32_t p = problem_.devices;
    const bool are_alike = problem_.are_alike(0, p - 1) && problem_.kind_of_device.empty();
    std::vector<std::pair<std::string, PipelineLayout>> layouts{{"contiguous", contiguous_layout(problem_)}};
    const auto add = [&](std::string name, PipelineLayout layout) {
      const auto is_same = [&](const auto& other) { return other.second == layout; };
      if (std::ranges::none_of(layouts, is_same)) layouts.emplace_back(std::move(name), std::move(layout));
    };
    if (n >= 2 * p) add("v-shaped", v_layout(problem_));
    for (std::uint32_t v = 2; v <= kMostChunks && v * p <= n; ++v) add("interleaved", interleaved_layout(problem_, v));
    for (std::uint32_t g = 1; g * p <= n; g *= 2) add("modulo", modulo_layout(problem_, g));
    if (options_.may_repeat_weights && problem_.micro_batches > 1 && p > 1) add("two-way", two_way_layout(problem_));
    for (PipelineLayout& layout : all_layouts(problem_, are_alike ? kFewLayouts : kFewUnequalLayouts))
      add("free", std::move(layout));
    for (auto& [name, layout] : layouts) list(name, std::move(layout));
    if (lists_.empty() && problem_.has_caps()) list("memory's", layout_by_memory(problem_));
    if (!lists_.empty() || !best_named_.schedule.name.empty()) return;
    const auto [low, high] = std::ranges::minmax_element(problem_.memory_caps);
    const std::string caps = problem_.memory_caps.empty() ? "cap of " + format_bytes(*problem_.memory_cap)
                             : *low == *high              ? "cap of " + format_bytes(*low)
                                             : fmt::format("caps of {} to {}", format_bytes(*low), format_bytes(*high));
    fail_user(
        "pipeline: no schedule fits the memory {} per device; the least needs {}; raise the cap, or use more devices "
        "or "
        "smaller micro-batches",
        caps, format_bytes(least_bytes_));
  }

  // With the best of some plain rules, if it can be kept in memory.
  void list(const std::string& name, PipelineLayout layout) {
    RuleSearch search(problem_, std::move(layout));
    least_bytes_ = std::min(least_bytes_, search.least_bytes());
    if (!search.fits()) return;
    search.try_plain_rules(budget_, 0.3);
    lists_.push_back({name, std::move(search)});
  }

  // First the named ones, then rounds: a layout and a rule, from there orders. The more tries for so many blocks, the
  // more rounds. At last what has come out best.
  void improve() {
    constexpr std::size_t kLeast = 3;
    constexpr double kTriesPerBlock = 30, kMostRounds = 24, kLast = 0.8;
    const double blocks = 3.0 * problem_.micro_batches * static_cast<double>(problem_.blocks.size());
    const double begin = budget_.gone();
    const auto rounds = static_cast<std::size_t>(
        std::clamp(budget_.expected_tries() / (kTriesPerBlock * blocks), static_cast<double>(kLeast), kMostRounds));
    std::ranges::stable_sort(lists_, {}, [](const NamedRuleSearch& l) { return l.search.best_ns(); });
    if (const std::size_t most = std::max(kLeast, rounds / 2); lists_.size() > most)
      lists_.erase(lists_.begin() + static_cast<std::ptrdiff_t>(most), lists_.end());
    best_ = best_named_;
    const double share = std::max(0.0, kLast - begin) / static_cast<double>(rounds + 1);
    if (!best_.schedule.name.empty()) improve_order(best_named_, begin + share);
    for (std::size_t i = 0; i < rounds && !lists_.empty(); ++i) {
      auto& [name, search] = lists_[i % lists_.size()];
      if (i >= lists_.size()) search.set_out_anew(budget_);
      const double end = begin + share * static_cast<double>(i + 2);
      search.run(budget_, end - share / 2);
      improve_order({{fmt::format("{}{}", name, kList), search.best_layout(), search.best_orders()}, search.best_ns()},
                    end);
    }
    improve_order(Candidate(best_), 1);
  }

  void improve_order(const Candidate& from, double until) {
    OrderSearch search(problem_, from.schedule);
    search.run(budget_, until);
    if (search.best_ns() < from.ns)
      tried_.push_back({{reordered(from.schedule.name), from.schedule.layout, search.best()}, search.best_ns()});
    else
      tried_.push_back(from);
    if (tried_.back().ns < best_.ns) best_ = tried_.back();
  }

  FoundSchedule found(const Candidate& candidate) const {
    FoundSchedule found;
    found.reason = candidate.schedule.name;
    found.schedule = candidate.schedule;
    if (is_found(found.reason)) found.schedule.name = "search";
    if (!best_named_.schedule.name.empty()) {
      found.best_named = best_named_.schedule.name;
      found.best_named_ns = best_named_.ns;
    }
    found.tries = budget_.tries();
    return found;
  }

  const PipelineProblem& problem_;
  ScheduleSearchOptions options_;
  SearchBudget budget_;
  std::vector<Candidate> named_;  // those that fit
  std::vector<Candidate> tried_;  // what improving came to, each time
  Candidate best_named_, best_;
  std::vector<NamedRuleSearch> lists_;
  std::int64_t least_bytes_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

std::uint64_t usual_tries(const PipelineProblem& problem) {
  // A try times all blocks of the chunks, which are few per device, and costs something for each device.
  const double chunks = std::min(static_cast<double>(problem.blocks.size()), 2.0 * problem.devices);
  const double work = 3 * chunks * problem.micro_batches;
  return static_cast<std::uint64_t>(std::clamp(kUsualWork / work, kLeastTries, kMostTries));
}

FoundSchedule search_schedule(const PipelineProblem& problem, const ScheduleSearchOptions& options) {
  check(problem);
  const PipelineProblem sized = with_sizes(problem);
  ScheduleSearch search(sized, options);
  search.run();
  FoundSchedule found = search.best();
  found.times = evaluate(problem, found.schedule);
  return found;
}

std::vector<FoundSchedule> search_schedules(const PipelineProblem& problem, const ScheduleSearchOptions& options,
                                            std::size_t count) {
  check(problem);
  const PipelineProblem sized = with_sizes(problem);
  ScheduleSearch search(sized, options);
  search.run();
  std::vector<FoundSchedule> all = search.several(count);
  for (FoundSchedule& found : all) found.times = evaluate(problem, found.schedule);
  return all;
}

FoundSchedule best_schedule(const PipelineProblem& problem, const ScheduleSearchOptions& options,
                            const PredictStep& predict) {
  return best_schedules(problem, options, predict, 1)[0];
}

std::vector<FoundSchedule> best_schedules(const PipelineProblem& problem, const ScheduleSearchOptions& options,
                                          const PredictStep& predict, std::size_t count) {
  const std::uint64_t tries = options.tries.value_or(usual_tries(problem));
  ScheduleSearchOptions first = options;
  first.tries = static_cast<std::uint64_t>(kFirstPart * static_cast<double>(tries));
  std::vector<FoundSchedule> all = search_schedules(problem, first, kFoundToPredict);
  for (FoundSchedule& found : all) found.predicted_ns = predict(found.schedule);
  std::ranges::stable_sort(all, {}, &FoundSchedule::predicted_ns);
  if (all.size() > count) all.resize(count);
  FoundSchedule& best = all[0];
  const PipelineProblem sized = with_sizes(problem);
  SearchBudget budget(tries - *first.tries, options.seed + 1);
  for (std::size_t round = 1; round <= kRoundsToPredict; ++round) {
    OrderSearch search(sized, best.schedule);
    search.run(budget, static_cast<double>(round) / kRoundsToPredict);
    PipelineSchedule next{"search", best.schedule.layout, search.best()};
    if (next.orders == best.schedule.orders) continue;
    const std::int64_t ns = predict(next);
    if (ns >= best.predicted_ns) continue;
    best.reason = reordered(best.reason);
    best.schedule = std::move(next);
    best.predicted_ns = ns;
  }
  best.times = evaluate(problem, best.schedule);
  best.tries += budget.tries();
  return all;
}

}  // namespace overtake
