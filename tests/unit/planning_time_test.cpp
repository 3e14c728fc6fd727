// How long planning may take, by clocks that only go on when they are asked or told to.

#include "train/planning_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "overtake/zoo.h"
#include "plan/program.h"
#include "train/planner.h"
#include "train/trials.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

struct HandClock {
  std::shared_ptr<double> now = std::make_shared<double>(100);
  std::function<double()> get() const {
    return [now = now] { return *now; };
  }
};

TEST(PlanningTime, IsAPartOfTheRunOrWhatIsAskedFor) {
  const HandClock clock;
  PlanningTime unlimited({.clock = clock.get()});
  EXPECT_TRUE(std::isinf(unlimited.limit()));
  EXPECT_EQ(unlimited.affordable(1000, 1e6), 1000);
  EXPECT_EQ(unlimited.promise(), "");
  PlanningTime by_run({.steps = 1000, .is_needed = false, .clock = clock.get()});
  EXPECT_EQ(by_run.limit(), 5);
  by_run.know_step(0.001);
  EXPECT_EQ(by_run.limit(), 5);
  EXPECT_FALSE(by_run.is_worthwhile()) << "the run takes a second";
  EXPECT_TRUE(says(by_run.why_not(), {"the run takes about 1.0 s"}));
  by_run.know_step(1);
  EXPECT_EQ(by_run.limit(), 50);
  EXPECT_TRUE(by_run.is_worthwhile());
  PlanningTime few({.steps = 100, .is_needed = false, .clock = clock.get()});
  few.know_step(0.5);
  EXPECT_FALSE(few.is_worthwhile()) << "ten steps are all that there is time for";
  EXPECT_TRUE(says(few.why_not(), {"a step takes about 0.5 s", "no more than 5 s for 100 of them"}));
  PlanningTime asked({.seconds = 8, .steps = 5, .is_needed = false, .clock = clock.get()});
  asked.know_step(1);
  EXPECT_EQ(asked.limit(), 8);
  EXPECT_TRUE(asked.is_worthwhile());
  *clock.now += 2;
  EXPECT_EQ(asked.spent(), 2);
  EXPECT_EQ(asked.left(), 6);
  EXPECT_EQ(asked.left(0.5), 2);
  EXPECT_TRUE(asked.is_over(0.25));
  EXPECT_FALSE(asked.is_over());
  EXPECT_EQ(asked.affordable(10, 4), 1);
  EXPECT_EQ(asked.affordable(10, 0.1), 10);
  *clock.now += 10;
  EXPECT_EQ(asked.affordable(10, 0.1), 0);
  EXPECT_EQ(asked.summary(), "planned in 12.0 s");
  asked.leave_out("2 of 5 schedules were tried");
  EXPECT_TRUE(
      says(asked.summary(), {"planned in 12.0 s, at most 8.0 s: 2 of 5 schedules were tried", "`plan_seconds`"}));
}

TEST(PlanningTime, ATrialIsAsLargeAsThereIsTimeFor) {
  const HandClock clock;
  const PlanningTime time({.seconds = 60, .clock = clock.get()});
  const TrialSize all{5, 5, 4};
  const auto size = [&](double step_s) {
    const TrialSize s = affordable_trial(all, step_s, time);
    return std::vector<int>{static_cast<int>(s.choices), s.rounds, s.steps};
  };
  EXPECT_EQ(size(0.1), (std::vector<int>{5, 5, 4}));   // 5 choices x 6 rounds x 5 steps
  EXPECT_EQ(size(0.5), (std::vector<int>{5, 5, 1}));   // 30 s instead of 75
  EXPECT_EQ(size(1.2), (std::vector<int>{5, 3, 1}));   // 48 s instead of 72
  EXPECT_EQ(size(3.0), (std::vector<int>{2, 3, 1}));   // 48 s
  EXPECT_EQ(size(10.0), (std::vector<int>{0, 0, 0}));  // the two would take 160 s
}

// Plans on a device that computes nothing, with folders and a clock of its own.
class PlannedRuns : public testing::Test {
 protected:
  PlannedRuns() { spec_.device = "null"; }

  PlannedRun plan() {
    notes_.clear();
    const WorkplaceOptions options{
        .profiles = folder_.path() / "kept", .steps = steps_, .clock = clock_, .note = [this](const std::string& line) {
          notes_ += line + "\n";
        }};
    return plan_run(build_model("lenet", ModelSettings::parse("batch=4")), spec_, open_workplace(spec_, options));
  }
  bool has_said(std::string_view words) const { return notes_.find(words) != std::string::npos; }

  TemporaryFolder folder_;
  RunSpec spec_;
  std::optional<std::uint64_t> steps_;
  HandClock hand_;
  std::function<double()> clock_ = hand_.get();
  std::string notes_;
};

TEST_F(PlannedRuns, EndInTimeWhateverIsLeft) {
  // Each look at the clock takes a second.
  const auto now = std::make_shared<double>(0);
  clock_ = [now] { return ++*now; };
  for (const double seconds : {1.0, 4.0, 20.0}) {
    spec_.plan_seconds = seconds;
    spec_.fresh_profile = true;
    *now = 0;
    const PlannedRun run = plan();
    EXPECT_EQ(run.program.chosen, 0u) << "what was not tried is not taken";
    EXPECT_TRUE(has_said("planned in ") && has_said(" at most ")) << notes_;
    // What is left to do when the time is over looks at the clock a few times more: for each choice and phase.
    EXPECT_LE(*now, seconds + 40) << seconds;
  }
}

TEST_F(PlannedRuns, OutOfOrderIsOutOfOrderInNoTime) {
  const auto now = std::make_shared<double>(0);
  clock_ = [now] { return ++*now; };
  spec_.schedule = "ooo";
  spec_.plan_seconds = 1;
  const PlannedRun run = plan();
  EXPECT_NE(run.program.chosen, 0u);
  EXPECT_EQ(run.program.choices[0].measured_ns, 0);
}

TEST_F(PlannedRuns, AllIsTriedWhereThereIsTime) {
  spec_.schedule = "ooo";
  const PlannedRun run = plan();
  ASSERT_GE(run.program.choices.size(), 2u);
  for (const PlanChoice& c : run.program.choices) EXPECT_GT(c.measured_ns, 0) << c.name;
  EXPECT_FALSE(has_said("at most")) << notes_;
}

TEST_F(PlannedRuns, AShortRunIsNotPlanned) {
  steps_ = 5;
  const PlannedRun run = plan();
  EXPECT_EQ(run.program.choices.size(), 1u);
  EXPECT_TRUE(says(run.program.reason, {"schedule: in order; the run takes about 0.0 s", "`plan_seconds`"}));
  EXPECT_TRUE(says(notes_, {"planning, for 5 s at most, or 5 % of the run"}));
}

TEST_F(PlannedRuns, AreKept) {
  spec_.schedule = "ooo";
  const PlannedRun first = plan();
  EXPECT_FALSE(has_said("planned before")) << notes_;
  const PlannedRun second = plan();
  EXPECT_TRUE(has_said("planned before")) << notes_;
  EXPECT_EQ(save_choices(second.program), save_choices(first.program));
  spec_.fresh_profile = true;
  plan();
  EXPECT_FALSE(has_said("planned before")) << notes_;
  spec_.fresh_profile = false;
  spec_.parts = 3;
  plan();
  EXPECT_FALSE(has_said("planned before")) << "of another step: " << notes_;
}

TEST_F(PlannedRuns, DamagedOnesAreMadeAnew) {
  spec_.schedule = "ooo";
  const std::string good = save_choices(plan().program);
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "kept"))
    if (entry.path().filename().string().starts_with("plan-")) file = entry.path();
  ASSERT_FALSE(file.empty());
  const std::string text = read_file(file);
  nlohmann::json other = nlohmann::json::parse(text);
  other["choices"]["chosen"] = 99;
  nlohmann::json shorter = nlohmann::json::parse(text);
  shorter["choices"]["costs"][0].erase(0);
  for (const std::string& damaged : {std::string(), std::string("{}"), std::string("[1"),
                                     text.substr(0, text.size() / 2), other.dump(), shorter.dump()}) {
    folder_.write("kept/" + file.filename().string(), damaged);
    plan();
    EXPECT_TRUE(has_said(file.string()) && has_said("planning anew")) << damaged.substr(0, 60) << notes_;
    plan();
    EXPECT_TRUE(has_said("planned before")) << "and replaced: " << notes_;
  }
}

// What was cut short after a second is not good enough for a run that has all the time.
TEST_F(PlannedRuns, ACutPlanIsOfShortRuns) {
  const auto now = std::make_shared<double>(0);
  clock_ = [now] { return ++*now; };
  spec_.schedule = "ooo";
  spec_.plan_seconds = 1;
  plan();
  EXPECT_TRUE(has_said("at most")) << notes_;
  plan();
  EXPECT_TRUE(has_said("planned before")) << notes_;
  clock_ = hand_.get();
  spec_.plan_seconds = 1000;
  const PlannedRun run = plan();
  EXPECT_FALSE(has_said("planned before")) << notes_;
  for (const PlanChoice& c : run.program.choices) EXPECT_GT(c.measured_ns, 0) << c.name;
}

}  // namespace
}  // namespace overtake
