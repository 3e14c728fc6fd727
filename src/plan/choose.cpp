// Which of a program's choices is taken, and why.

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "plan/compile.h"
#include "plan/lanes/lane_choices.h"
#include "plan/lanes/worthwhile.h"

namespace overtake {
namespace {

bool has_side_lanes(const PlanChoice& c) { return !c.side.tasks.empty(); }

std::string times_text(const PlanChoice& best, const PlanChoice& in_order, bool is_measured) {
  const auto ms = [&](const PlanChoice& c) {
    return static_cast<double>(is_measured ? c.measured_ns : c.predicted_ns) * 1e-6;
  };
  return fmt::format("{} {:.2f} ms, in order {:.2f} ms", is_measured ? "measured" : "predicted", ms(best),
                     ms(in_order));
}

void choose_lanes(Program& p) {
  std::vector<PlanChoice>& all = p.choices;
  p.chosen = 0;
  if (all.size() < 2) return;
  const bool is_measured = all[0].measured_ns > 0, must = p.spec.schedule == "ooo";
  // What there was no time to try is not taken where others were tried.
  const auto ns = [&](const PlanChoice& c) {
    constexpr std::int64_t kUntried = std::numeric_limits<std::int64_t>::max();
    return !is_measured ? c.predicted_ns : c.measured_ns > 0 ? c.measured_ns : kUntried;
  };
  const auto fastest = std::ranges::min_element(all.begin() + 1, all.end(), {}, ns);
  const std::string times = times_text(*fastest, all[0], is_measured);
  if (!must && static_cast<double>(ns(*fastest)) > kWorthwhileTime * static_cast<double>(ns(all[0]))) {
    const bool is_faster = ns(*fastest) < ns(all[0]);
    p.reason = fmt::format("schedule: in order; reordering {}: {}",
                           is_faster ? "gains less than 1 % here" : "does not pay here", times);
  } else if (!must && is_measured && fastest->won_rounds < kRoundsToWin) {
    p.reason = fmt::format("schedule: in order; reordering was faster in only {} of {} rounds, which may be chance: {}",
                           fastest->won_rounds, kTrialRounds, times);
  } else {
    p.chosen = static_cast<std::size_t>(fastest - all.begin());
    p.reason = fmt::format("schedule: {}; {}", describe(fastest->order), times);
  }
}

void choose_division(Program& p) {
  const bool is_measured = std::ranges::any_of(p.choices, [](const PlanChoice& c) { return c.measured_ns > 0; });
  // What was not measured, because it had no room, is not taken where others were. A second lane must be worthwhile.
  const auto key = [&](const PlanChoice& c) {
    const auto ns = static_cast<double>(is_measured ? c.measured_ns : c.predicted_ns);
    const bool has_no_room = is_measured ? c.measured_ns == 0 : !c.fits;
    return std::pair(has_no_room, has_side_lanes(c) ? ns / kWorthwhileTime : ns);
  };
  const auto best = std::ranges::min_element(p.choices, {}, key);
  p.chosen = static_cast<std::size_t>(best - p.choices.begin());
  if (p.choices.size() < 2) return;
  const auto ns = [&](const PlanChoice& c) { return is_measured ? c.measured_ns : c.predicted_ns; };
  // The last choice is the first one's twin on one lane, where that has two. Of the two it is said what lanes bring.
  const bool has_twin = has_side_lanes(p.choices[0]) && !has_side_lanes(p.choices.back());
  const bool is_about_lanes = has_twin && (p.chosen == 0 || p.chosen + 1 == p.choices.size());
  std::vector<PlanChoice> others = p.choices;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(p.chosen));
  const PlanChoice& other = !is_about_lanes ? *std::ranges::min_element(others, {}, key)
                            : p.chosen == 0 ? p.choices.back()
                                            : p.choices[0];
  const auto time = [&](const PlanChoice& c) {
    return ns(c) > 0 ? fmt::format("{:.2f} ms", static_cast<double>(ns(c)) * 1e-6) : std::string("no room");
  };
  const std::string what = !is_about_lanes ? best->name
                           : p.chosen == 0 ? "weight gradients on a second lane of every device"
                           : ns(other) > 0 && ns(other) < ns(*best)
                               ? "one lane on every device, a second gains less than 1 % here"
                               : "one lane on every device, a second does not pay here";
  p.reason = fmt::format("schedule: {}; {} {}, {} {}", what, is_measured ? "measured" : "predicted", time(*best),
                         other.name, time(other));
}

}  // namespace

void choose(Program& program) { program.is_outlined() ? choose_division(program) : choose_lanes(program); }

}  // namespace overtake
