#pragma once
// How long planning may take, and how much of that is gone.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace overtake {

struct PlanningLimits {
  double seconds = 0;                       // that the user asks for; 0: by the length of the run
  std::optional<std::uint64_t> steps = {};  // of the run that is planned; none: not known, so it limits nothing
  bool is_needed = true;                    // planning is done however short the run is
  std::function<double()> clock = {};       // seconds since any moment; none: the machine's clock
};

// Planning measures tasks, searches, and tries the best plans out, in this order: each may take what is there until its
// part of the limit is gone, so that there is time for the next. What remains undone then is left out and said.
class PlanningTime {
 public:
  static constexpr double kLeast = 5, kPartOfRun = 0.05;  // seconds, of the whole run in order
  static constexpr double kLeastSteps = 20;               // that planning takes the time of
  static constexpr double kStepPart = 0.3, kPairsPart = 0.5, kMeasuringPart = 0.6, kSearchPart = 0.75;

  explicit PlanningTime(PlanningLimits limits = {});

  // What a step of the run takes in order: the longer the run, the longer may planning be.
  void know_step(double seconds) { step_s_ = seconds; }
  // Infinite where nothing limits planning.
  double limit() const;
  double spent() const;
  // Seconds until that part of the limit is gone.
  double left(double part = 1) const;
  bool is_over(double part = 1) const { return left(part) <= 0; }
  // How many of so many pieces of work there is time for.
  int affordable(int wanted, double seconds_each, double part = 1) const;
  // Whether planning is needed, or can be of use: the run is longer than its planning may be, and there is time to
  // measure a few steps and to try another schedule.
  bool is_worthwhile() const;
  std::string why_not() const;

  // Whether what was cut short after so many seconds (0: it was not) is as good as what would be made now.
  bool is_no_longer(double cut_after_s) const;

  // Notes what there was no time for, in words.
  void leave_out(std::string what) { left_out_.push_back(std::move(what)); }
  bool is_cut() const { return !left_out_.empty(); }
  // "for 5 s at most, or 5 % of the run"; empty where nothing limits planning.
  std::string promise() const;
  // "planned in 5.0 s, which is all it may take: 3 of 5 schedules were tried".
  std::string summary() const;

 private:
  double run_seconds() const;  // 0: not known

  PlanningLimits limits_;
  double begin_ = 0, step_s_ = 0;
  std::vector<std::string> left_out_;
};

}  // namespace overtake
