// LaneThreads: order, helping, errors, many runs. Under TSan this is the test of the executor's threads.

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "exec/cpu/lanes.h"
#include "overtake/zoo.h"
#include "plan/in_order.h"
#include "plan/memory.h"
#include "run_setup.h"

namespace overtake {
namespace {

// A program whose tasks note the order in which they ran; task t waits for `before`.
struct Recorder {
  explicit Recorder(std::size_t tasks) : started(tasks), ended(tasks) {}
  std::atomic<int> clock{0};
  std::vector<std::atomic<int>> started, ended;

  BoundTask task(TaskId t, std::uint32_t parts) {
    return {{parts, [this, t, parts](std::uint32_t part, const StepArgs&) {
               if (part == 0) started[t] = ++clock;
               if (part + 1 == parts) ended[t] = ++clock;
             }}};
  }
};

struct LaneProgram {
  LaneOrder lanes;
  std::vector<BoundTask> tasks;
};

LaneProgram chain_over_lanes(Recorder& recorder, std::size_t tasks, std::size_t lanes) {
  LaneProgram program;
  program.lanes.resize(lanes);
  program.tasks.resize(tasks);
  for (TaskId t = 0; t < tasks; ++t) {
    program.tasks[t] = recorder.task(t, 1);
    LaneEntry entry{.task = t, .joined = kNone, .is_delayed = false, .waits_for = {}};
    if (t > 0) entry.waits_for.push_back(t - 1);
    program.lanes[t % lanes].push_back(entry);
  }
  return program;
}

TEST(Lane, ChainsAcrossLanesKeepTheirOrder) {
  for (const std::size_t lanes : {1u, 2u, 3u}) {
    Recorder recorder(60);
    const LaneProgram program = chain_over_lanes(recorder, 60, lanes);
    LaneThreads threads(3, lanes);
    for (int run = 0; run < 50; ++run) {
      const Trace trace = threads.run(program.lanes, program.tasks, {}, {});
      EXPECT_EQ(trace.spans.size(), 60u);
      for (std::size_t t = 1; t < 60; ++t) ASSERT_LT(recorder.ended[t - 1].load(), recorder.started[t].load());
    }
  }
}

TEST(Lane, EveryPartRunsOnceWhoeverHelps) {
  constexpr std::uint32_t kParts = 7, kTasks = 40;
  std::vector<std::atomic<int>> count(kTasks * kParts);
  LaneProgram program;
  program.lanes.resize(2);
  program.tasks.resize(kTasks);
  for (TaskId t = 0; t < kTasks; ++t) {
    const auto phase = [&count, t](std::uint32_t part, const StepArgs&) { ++count[t * kParts + part]; };
    program.tasks[t] = {{kParts, phase}, {1, [](std::uint32_t, const StepArgs&) {}}, {kParts, phase}};
    program.lanes[t % 2].push_back({.task = t, .joined = kNone, .is_delayed = false, .waits_for = {}});
  }
  LaneThreads threads(4, 2);
  constexpr int kRuns = 100;
  for (int run = 0; run < kRuns; ++run) threads.run(program.lanes, program.tasks, {}, {});
  for (const auto& c : count) EXPECT_EQ(c.load(), 2 * kRuns);
}

TEST(Lane, TheFirstErrorIsRaisedAndTheNextRunIsWhole) {
  Recorder recorder(20);
  LaneProgram program = chain_over_lanes(recorder, 20, 2);
  bool is_broken = true;
  program.tasks[7] = {{3, [&](std::uint32_t part, const StepArgs&) {
                         if (is_broken && part == 1) fail_user("task 7: broken; mend it");
                       }}};
  LaneThreads threads(2, 2);
  EXPECT_THROW(threads.run(program.lanes, program.tasks, {}, {}), UserError);
  is_broken = false;
  EXPECT_EQ(threads.run(program.lanes, program.tasks, {}, {}).spans.size(), 20u);
}

TEST(Lane, ProgramsOfDifferentLanesTakeTurns) {
  Recorder a(30), b(30);
  const LaneProgram one = chain_over_lanes(a, 30, 1), three = chain_over_lanes(b, 30, 3);
  LaneThreads threads(3, 3);
  for (int run = 0; run < 100; ++run) {
    EXPECT_EQ(threads.run(one.lanes, one.tasks, {}, {}).spans.size(), 30u);
    EXPECT_EQ(threads.run(three.lanes, three.tasks, {}, {}).spans.size(), 30u);
  }
}

// The whole executor, both schedules, training and evaluation in turn.
TEST(Lane, ATrainingStepOnTwoLanesHasNoRaces) {
  std::vector<std::uint64_t> hashes;
  for (const char* const schedule : {"in-order", "ooo"}) {
    RunSetup options;
    options.spec.schedule = schedule;
    options.spec.plan_seconds = 0.5;
    options.spec.threads = 3;
    options.spec.parts = 3;
    options.spec.clip_norm = 1;
    TrainingRun training = run_of(build_model("cnn", ModelSettings::parse("batch=6,width=4")), options);
    training.fill_inputs(1);
    for (int i = 0; i < 4; ++i) {
      training.step(0.05f);
      training.evaluate();
    }
    hashes.push_back(training.weights_hash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace overtake
