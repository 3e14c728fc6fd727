// What executors wait for: enough for all that is certain in a plan, on lanes of whatever kind.

#include "exec/lane_order.h"

#include <gtest/gtest.h>

#include "random_plan.h"
#include "unit/small_training.h"

namespace overtake {
namespace {

// For each task, whether another has certainly ended when it starts, if nothing is waited for but what the order says.
std::vector<std::vector<char>> ended_before(const Plan& plan, const LaneOrder& lanes) {
  std::vector<std::vector<char>> ended(plan.graph.tasks.size(), std::vector<char>(plan.graph.tasks.size(), 0));
  std::vector<TaskId> on_lane_before(plan.graph.tasks.size(), kNone);
  std::vector<const LaneEntry*> entry_of(plan.graph.tasks.size(), nullptr);
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    for (std::size_t i = 0; i < lanes[l].size(); ++i) {
      entry_of[lanes[l][i].task] = &lanes[l][i];
      if (i > 0 && !plan.lanes[l].is_asynchronous) on_lane_before[lanes[l][i].task] = lanes[l][i - 1].task;
    }
  }
  for (const TaskId t : one_order(plan)) {
    if (entry_of[t] == nullptr) continue;
    std::vector<TaskId> waits = entry_of[t]->waits_for;
    if (on_lane_before[t] != kNone) waits.push_back(on_lane_before[t]);
    for (const TaskId before : waits) {
      ended[t][before] = 1;
      for (TaskId earlier = 0; earlier < ended.size(); ++earlier) ended[t][earlier] |= ended[before][earlier];
    }
  }
  return ended;
}

TEST(LaneOrder, WaitsAreEnoughOnAsynchronousLanesToo) {
  std::mt19937 random(7);
  std::size_t waits = 0, certain = 0;
  for (int i = 0; i < 200; ++i) {
    Graph graph = SmallTraining(2 + random() % 5, true, random).graph;
    if (i % 2 == 1) delay_at_random(graph, random);
    Plan plan = random_plan(graph, 1 + random() % 4, random);
    for (Lane& lane : plan.lanes) lane.is_asynchronous = random() % 2 == 0;
    const Dependencies deps = dependencies(plan);
    const HappensBefore order = happens_before(plan, deps);
    for (const Portion portion : {Portion::step_and_delayed, Portion::step, Portion::delayed}) {
      const LaneOrder lanes = lane_order(plan, portion);
      const auto ended = ended_before(plan, lanes);
      const auto runs = [&](TaskId t) { return is_in(portion, plan.graph.tasks[t]); };
      for (TaskId t = 0; t < plan.graph.tasks.size(); ++t) {
        if (!runs(t)) continue;
        for (const TaskId before : deps.of(t))
          EXPECT_TRUE(!runs(before) || ended[t][before]) << "plan " << i << ": " << t << " needs " << before;
        for (TaskId before = 0; before < plan.graph.tasks.size(); ++before) {
          if (before == t || !runs(before) || !order.is_before(before, t)) continue;
          EXPECT_TRUE(ended[t][before]) << "plan " << i << ": memory counts on " << before << " before " << t;
          ++certain;
        }
      }
      for (const auto& lane : lanes)
        for (const LaneEntry& entry : lane) waits += entry.waits_for.size();
    }
  }
  EXPECT_GT(certain, 5 * waits) << "what follows from other waits is not waited for";
}

}  // namespace
}  // namespace overtake
