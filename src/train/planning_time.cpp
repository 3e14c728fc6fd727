#include "train/planning_time.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace overtake {

PlanningTime::PlanningTime(PlanningLimits limits) : limits_(std::move(limits)) {
  if (!limits_.clock)
    limits_.clock = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
  begin_ = limits_.clock();
}

double PlanningTime::run_seconds() const { return step_s_ * static_cast<double>(limits_.steps.value_or(0)); }

double PlanningTime::limit() const {
  if (limits_.seconds > 0) return limits_.seconds;
  if (!limits_.steps) return std::numeric_limits<double>::infinity();
  return std::max(kLeast, kPartOfRun * run_seconds());
}

double PlanningTime::spent() const { return limits_.clock() - begin_; }

double PlanningTime::left(double part) const { return std::max(0.0, part * limit() - spent()); }

int PlanningTime::affordable(int wanted, double seconds_each, double part) const {
  const double most = std::floor(left(part) / std::max(seconds_each, 1e-9));
  return most < static_cast<double>(wanted) ? static_cast<int>(most) : wanted;
}

bool PlanningTime::is_worthwhile() const {
  if (limits_.is_needed || limits_.seconds > 0 || !limits_.steps || step_s_ == 0) return true;
  return run_seconds() > limit() && limit() > kLeastSteps * step_s_;
}

bool PlanningTime::is_no_longer(double cut_after_s) const {
  constexpr double kMuchLonger = 1.5;
  return cut_after_s == 0 || limit() <= kMuchLonger * cut_after_s;
}

std::string PlanningTime::why_not() const {
  if (run_seconds() <= limit())
    return fmt::format("the run takes about {:.1f} s, no more than planning it may; `plan_seconds` plans it",
                       run_seconds());
  return fmt::format(
      "a step takes about {:.1f} s, and planning may take no more than {:.0f} s for {} of them; `plan_seconds` gives "
      "it "
      "more",
      step_s_, limit(), *limits_.steps);
}

std::string PlanningTime::promise() const {
  if (limits_.seconds > 0) return fmt::format("for {:g} s at most", limits_.seconds);
  return limits_.steps ? fmt::format("for {:g} s at most, or {:g} % of the run", kLeast, 100 * kPartOfRun) : "";
}

std::string PlanningTime::summary() const {
  if (left_out_.empty()) return fmt::format("planned in {:.1f} s", spent());
  return fmt::format("planned in {:.1f} s, at most {:.1f} s: {}; `plan_seconds` gives it more time", spent(), limit(),
                     fmt::join(left_out_, ", "));
}

}  // namespace overtake
