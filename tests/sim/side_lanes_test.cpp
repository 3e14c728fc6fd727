// A second lane on every device of a divided step.

#include "plan/divide/side_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"
#include "graph/live_memory.h"
#include "overtake/machine.h"
#include "plan/divide/step_planner.h"

namespace overtake::tests {
namespace {

constexpr std::int64_t kUnitNs = 1'000'000;
constexpr const char* kPipelines[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};

// Pipelines of four equal devices, whose tasks leave a part of the device to others.
struct Setting {
  explicit Setting(const ParallelOptions& parallel, double load = 0.7) : options(parallel), machine(four_devices()) {
    work.blocks = synthetic_blocks(16, kUnitNs, kUnitNs, kUnitNs);
    for (TaskCost& c : work.blocks.work) c.load = load;
  }
  static Machine four_devices() {
    Machine m = machine_of_virtual_gpus(4, {.bytes_per_s = 50'000'000'000, .latency_ns = 5000});
    m.most_lanes = 4;
    return m;
  }
  StepPlanner planner() const { return {work, options, machine}; }

  Workload work;
  ParallelOptions options;
  Machine machine;
};

ParallelOptions stages(const char* pipeline, const char* lanes = "in-order") {
  return {.stages = 4, .micro_batches = 4, .pipeline = pipeline, .lanes = lanes};
}

std::vector<TaskId> computed(const Plan& plan) {
  std::vector<TaskId> tasks;
  for (const Lane& lane : plan.lanes)
    if (!lane.is_asynchronous) tasks.insert(tasks.end(), lane.tasks.begin(), lane.tasks.end());
  std::ranges::sort(tasks);
  return tasks;
}

TEST(SideLanes, HaveTheWeightGradientsOfTheirDevice) {
  for (const char* pipeline : kPipelines) {
    SCOPED_TRACE(pipeline);
    const Setting setting(stages(pipeline));
    const StepPlanner planner = setting.planner();
    const Outline before = planner.outline(planner.choices()[0]);
    Outline after = before;
    const SideWork all = all_weight_gradients(before);
    EXPECT_EQ(all.tasks.size(), 16u * 4);
    put_aside(after, all);
    verify(after.plan);
    EXPECT_EQ(computed(after.plan), computed(before.plan));
    EXPECT_EQ(after.plan.lanes.size(), before.plan.lanes.size() + 4);
    for (const Lane& lane : after.plan.lanes)
      for (const TaskId t : lane.tasks) EXPECT_EQ(after.plan.graph.tasks[t].device, lane.device);
  }
}

TEST(SideLanes, OnlyWeightGradientsCanBePutThere) {
  const Setting setting(stages("1f1b"));
  const StepPlanner planner = setting.planner();
  Outline outline = planner.outline(planner.choices()[0]);
  SideWork side;
  for (TaskId t = 0; t < outline.plan.graph.tasks.size() && side.tasks.empty(); ++t)
    if (outline.plan.graph.tasks[t].kind == Kind::forward) side.tasks = {t};
  EXPECT_THROW(put_aside(outline, side), InternalError);
  side.tasks = {static_cast<TaskId>(outline.plan.graph.tasks.size())};
  EXPECT_THROW(put_aside(outline, side), InternalError);
}

// Whatever is put aside, no task waits for ever.
TEST(SideLanes, EveryChoiceOfTasksEnds) {
  std::mt19937 random(7);
  for (const char* pipeline : kPipelines)
    for (const std::uint32_t replicas : {1u, 2u}) {
      SCOPED_TRACE(pipeline);
      ParallelOptions options = stages(pipeline);
      options.replicas = replicas;
      options.stages = 4 / replicas;
      const Setting setting(options);
      const StepPlanner planner = setting.planner();
      PlanChoice choice = planner.choices()[0];
      const SideWork all = all_weight_gradients(planner.outline(choice));
      for (int i = 0; i < 10; ++i) {
        choice.side = {};
        for (const TaskId t : all.tasks)
          if (random() % 2 == 0) choice.side.tasks.push_back(t);
        PredictedStep step = planner.predict(choice);
        ASSERT_TRUE(step.result.is_finished);
        choice.side.waits = waits_for_memory(planner.outline(choice), step.result.trace);
        step = planner.predict(choice);
        ASSERT_TRUE(step.result.is_finished);
      }
    }
}

// Waits are only for what has ended long since: they cost no time.
TEST(SideLanes, WaitsForMemoryCostNothing) {
  for (const char* pipeline : kPipelines) {
    SCOPED_TRACE(pipeline);
    const Setting setting(stages(pipeline));
    const StepPlanner planner = setting.planner();
    PlanChoice choice = planner.choices()[0];
    choice.side = all_weight_gradients(planner.outline(choice));
    const PredictedStep before = planner.predict(choice);
    choice.side.waits = waits_for_memory(planner.outline(choice), before.result.trace);
    EXPECT_FALSE(choice.side.waits.empty());
    const PredictedStep after = planner.predict(choice);
    verify(after.outline.plan);
    EXPECT_EQ(after.step_ns(), before.step_ns());
    std::map<TaskId, std::int64_t> begin, end;
    for (const Span& s : after.result.trace.spans) {
      begin[s.task] = s.begin_ns;
      end[s.task] = s.end_ns;
    }
    const std::set<TaskId> aside(choice.side.tasks.begin(), choice.side.tasks.end());
    for (const Wait& w : choice.side.waits) {
      EXPECT_TRUE(aside.contains(w.before));
      EXPECT_FALSE(aside.contains(w.after));
      EXPECT_LT(end.at(w.before), begin.at(w.after));
    }
  }
}

TEST(SideLanes, AreChosenWhereTasksLeaveSomethingOfTheDevice) {
  const auto best = [](const char* lanes, double load) {
    const Setting setting(stages("1f1b", lanes), load);
    const StepPlanner planner = setting.planner();
    const std::vector<PlanChoice> all = planner.choices();
    return std::pair(all[0], planner.predict(all[0]).step_ns());
  };
  const auto [one_lane, one_lane_ns] = best("in-order", 0.7);
  EXPECT_TRUE(one_lane.side.tasks.empty());
  const auto [aside, aside_ns] = best("auto", 0.7);
  EXPECT_FALSE(aside.side.tasks.empty());
  EXPECT_LT(aside_ns, one_lane_ns * 9 / 10);
  EXPECT_EQ(name_of(aside, stages("1f1b")), "1f1b + side lanes");
  // Tasks that need all of their device gain nothing beside one another.
  EXPECT_TRUE(best("auto", 1.0).first.side.tasks.empty());
  EXPECT_FALSE(best("ooo", 1.0).first.side.tasks.empty());
}

// So that trials on the device itself can say whether the second lane pays.
TEST(SideLanes, TheLastChoiceIsTheBestOneOnOneLane) {
  const Setting setting(stages("1f1b", "auto"));
  const std::vector<PlanChoice> all = setting.planner().choices();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_FALSE(all[0].side.tasks.empty());
  EXPECT_TRUE(all[1].side.tasks.empty());
  EXPECT_EQ(all[1].schedule.name, all[0].schedule.name);
  EXPECT_LT(all[0].predicted_ns, all[1].predicted_ns);
  const Setting must(stages("1f1b", "ooo"));
  EXPECT_EQ(must.planner().choices().size(), 1u);
}

TEST(SideLanes, KeepToTheMemoryTheyMayUse) {
  for (const char* pipeline : kPipelines) {
    SCOPED_TRACE(pipeline);
    Setting setting(stages(pipeline));
    const PredictedStep one_lane = setting.planner().predict(setting.planner().choices()[0]);
    const auto room = std::ranges::max(peak_memory(one_lane));
    setting.options.lanes = "auto";
    setting.options.memory_cap = static_cast<std::uint64_t>(room);
    const PredictedStep capped = setting.planner().predict(setting.planner().choices()[0]);
    EXPECT_LE(std::ranges::max(peak_memory(capped)), room);
    EXPECT_LE(capped.step_ns(), one_lane.step_ns());
  }
}

// Where not all weight gradients have room on the side, some have.
TEST(SideLanes, AMustIsMetWithWhatHasRoom) {
  const Setting setting(stages("1f1b"));
  const StepPlanner planner = setting.planner();
  PlanChoice choice = planner.choices()[0];
  const Outline outline = planner.outline(choice);
  const std::size_t all = all_weight_gradients(outline).tasks.size();
  const auto most = [&](std::size_t tasks) {
    return search_side_work(outline, [&](const SideWork& side) { return side.tasks.size() > tasks ? kUnfit : kUnitNs; },
                            {.must = true, .tries = 200});
  };
  EXPECT_EQ(most(all).tasks.size(), all);
  const std::size_t some = most(all / 2).tasks.size();
  EXPECT_GT(some, 0u);
  EXPECT_LE(some, all / 2);
  EXPECT_EQ(most(0).tasks.size(), all) << "nothing has room, and that is said of all of them";
}

TEST(SideLanes, ASearchIsNoWorseThanAllOrNothingAndAlwaysTheSame) {
  for (const char* pipeline : kPipelines) {
    SCOPED_TRACE(pipeline);
    const Setting setting(stages(pipeline));
    const StepPlanner planner = setting.planner();
    PlanChoice choice = planner.choices()[0];
    const Outline outline = planner.outline(choice);
    std::uint64_t tries = 0;
    const auto step_ns = [&](const SideWork& side) {
      ++tries;
      choice.side = side;
      return planner.predict(choice).step_ns();
    };
    constexpr std::uint64_t kTries = 60;
    const SideWork best = search_side_work(outline, step_ns, {.tries = kTries});
    EXPECT_LE(tries, kTries);
    EXPECT_LE(step_ns(best), step_ns({}));
    EXPECT_LE(step_ns(best), step_ns(all_weight_gradients(outline)));
    EXPECT_EQ(search_side_work(outline, step_ns, {.tries = kTries}).tasks, best.tasks);
    const auto same = [](const SideWork&) { return kUnitNs; };
    EXPECT_TRUE(search_side_work(outline, same, {.tries = kTries}).tasks.empty()) << "nothing is gained";
    EXPECT_FALSE(search_side_work(outline, same, {.must = true, .tries = kTries}).tasks.empty());
  }
}

}  // namespace
}  // namespace overtake::tests
