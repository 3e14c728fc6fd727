#include "plan/pipeline/search.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/units.h"
#include "plan/pipeline/cut.h"
#include "plan/pipeline/named.h"
#include "plan/pipeline/order_search.h"
#include "plan/pipeline/rule_search.h"

namespace overtake {
namespace {

// So many can all be looked at.
constexpr std::size_t kFewLayouts = 64;
// Chunks per device beyond which nothing more is tried.
constexpr std::uint32_t kMostChunks = 4;

constexpr std::string_view kReordered = ", reordered";

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
      : problem_(problem),
        may_repeat_weights_(options.may_repeat_weights),
        budget_(options.seconds, options.tries, options.seed) {}

  FoundSchedule run() {
    try_named();
    list_layouts();
    improve();
    return found();
  }

 private:
  // Every named schedule, with all options that make a difference.
  void try_named() {
    const auto per_device = static_cast<std::uint32_t>(problem_.stages.size()) / problem_.devices;
    for (const NamedSchedule& named : named_schedules()) {
      std::vector<ScheduleOptions> variants{{}};
      if (named.name == "interleaved") {
        variants.clear();
        for (std::uint32_t v = 2; v <= std::min(per_device, kMostChunks); ++v)
          variants.push_back({.chunks = v, .group = 1});
      }
      if (named.name == "modulo") {
        variants.clear();
        for (std::uint32_t g = 1; g <= per_device; g *= 2) variants.push_back({.chunks = 2, .group = g});
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
    if (schedule.layout.device_of.size() > 1 && !may_repeat_weights_) return;
    const PipelineTimes times = evaluate(problem_, schedule);
    std::int64_t peak = 0;
    for (const DeviceTimes& d : times.devices) peak = std::max(peak, d.peak_bytes);
    least_bytes_ = std::min(least_bytes_, peak);
    if (times.is_stuck || (problem_.memory_cap && peak > *problem_.memory_cap)) return;
    if (times.makespan_ns < best_named_.ns) best_named_ = {std::move(schedule), times.makespan_ns};
  }

  // Layouts that can be kept in memory, each with the best of some plain rules.
  void list_layouts() {
    const auto n = static_cast<std::uint32_t>(problem_.stages.size());
    const std::uint32_t p = problem_.devices;
    std::vector<std::pair<std::string, PipelineLayout>> layouts{{"contiguous", contiguous_layout(problem_)}};
    const auto add = [&](std::string name, PipelineLayout layout) {
      const auto is_same = [&](const auto& other) { return other.second == layout; };
      if (std::ranges::none_of(layouts, is_same)) layouts.emplace_back(std::move(name), std::move(layout));
    };
    if (n >= 2 * p) add("v-shaped", v_layout(problem_));
    for (std::uint32_t v = 2; v <= kMostChunks && v * p <= n; ++v) add("interleaved", interleaved_layout(problem_, v));
    for (std::uint32_t g = 1; g * p <= n; g *= 2) add("modulo", modulo_layout(problem_, g));
    if (may_repeat_weights_ && problem_.micro_batches > 1 && p > 1) add("two-way", two_way_layout(problem_));
    for (PipelineLayout& layout : all_layouts(problem_, kFewLayouts)) add("free", std::move(layout));
    for (auto& [name, layout] : layouts) {
      RuleSearch search(problem_, std::move(layout));
      least_bytes_ = std::min(least_bytes_, search.least_bytes());
      if (problem_.memory_cap && search.least_bytes() > *problem_.memory_cap) continue;
      search.try_plain_rules(budget_, 0.3);
      lists_.push_back({name, std::move(search)});
    }
    if (!lists_.empty() || !best_named_.schedule.name.empty()) return;
    fail_user(
        "pipeline: no schedule fits the memory cap of {} per device; the least needs {}; raise the cap, or use more "
        "devices or smaller micro-batches",
        format_bytes(*problem_.memory_cap), format_bytes(least_bytes_));
  }

  // First the named ones, then rounds: a layout and a rule, from there orders. The more tries for so many blocks, the
  // more rounds. At last what has come out best.
  void improve() {
    constexpr std::size_t kLeast = 3;
    constexpr double kTriesPerBlock = 30, kMostRounds = 24, kLast = 0.8;
    const double blocks = 3.0 * problem_.micro_batches * static_cast<double>(problem_.stages.size());
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
      improve_order({{name + " list", search.best_layout(), search.best_orders()}, search.best_ns()}, end);
    }
    improve_order(Candidate(best_), 1);
  }

  void improve_order(const Candidate& from, double until) {
    OrderSearch search(problem_, from.schedule);
    search.run(budget_, until);
    if (from.ns < best_.ns) best_ = from;
    if (search.best_ns() >= best_.ns) return;
    const std::string_view name = from.schedule.name;
    best_ = {{name.ends_with(kReordered) ? std::string(name) : fmt::format("{}{}", name, kReordered),
              from.schedule.layout, search.best()},
             search.best_ns()};
  }

  FoundSchedule found() {
    FoundSchedule found;
    found.reason = best_.schedule.name;
    found.schedule = std::move(best_.schedule);
    if (best_.ns < best_named_.ns) found.schedule.name = "search";
    if (!best_named_.schedule.name.empty()) {
      found.best_named = best_named_.schedule.name;
      found.best_named_ns = best_named_.ns;
    }
    found.tries = budget_.tries();
    return found;
  }

  const PipelineProblem& problem_;
  bool may_repeat_weights_;
  SearchBudget budget_;
  Candidate best_named_, best_;
  std::vector<NamedRuleSearch> lists_;
  std::int64_t least_bytes_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

FoundSchedule search_schedule(const PipelineProblem& problem, const ScheduleSearchOptions& options) {
  check(problem);
  const PipelineProblem sized = with_sizes(problem);
  FoundSchedule found = ScheduleSearch(sized, options).run();
  found.times = evaluate(problem, found.schedule);
  return found;
}

}  // namespace overtake
