// Runs whose tasks have an order of the caller's.

#include <gtest/gtest.h>

#include "caught_error.h"
#include "overtake/zoo.h"
#include "plan/in_order.h"
#include "random_plan.h"
#include "run_setup.h"
#include "test_device.h"

namespace overtake {
namespace {

RunSetup with_order(std::function<Plan(const Graph&)> order) {
  RunSetup options = in_order_setup();
  options.more.compile.own_order = std::move(order);
  use_test_device(options, Precision::f32, 2);
  options.spec.parts = 2;
  options.spec.seed = kSeed;
  return options;
}
Graph lenet() { return build_model("lenet", ModelSettings::parse("batch=4")); }

std::uint64_t after_three_steps(TrainingRun& training) {
  for (std::uint64_t i = 0; i < 3; ++i) {
    training.fill_inputs(i);
    training.step(0.05f);
  }
  return training.weights_hash();
}

TEST(OwnOrder, IsRunAndHasTheWeightsOfInOrder) {
  TrainingRun in_order = run_of(lenet(), with_order({}));
  std::mt19937 random(1);
  TrainingRun own = run_of(lenet(), with_order([&](const Graph& g) { return random_plan(g, 2, random); }));
  EXPECT_EQ(own.plan().schedule, "random");
  EXPECT_EQ(own.program().choice().name, "random");
  EXPECT_EQ(after_three_steps(own), after_three_steps(in_order));
}

// In order, but for what `change` does to the plan.
std::function<Plan(const Graph&)> changed(std::function<void(Plan&)> change) {
  return [change = std::move(change)](const Graph& g) {
    Plan plan = schedule_in_order(g);
    plan.schedule = "mine";
    change(plan);
    return plan;
  };
}

TEST(OwnOrder, IsRefusedWhereItCannotRun) {
  const std::function<void(Plan&)> changes[] = {
      [](Plan& plan) { plan.lanes[0].tasks.pop_back(); },
      [](Plan& plan) { plan.lanes[0].tasks.push_back(0); },
      [](Plan& plan) { std::ranges::reverse(plan.lanes[0].tasks); },
      [](Plan& plan) { plan.lanes[0].tasks[0] = 1'000'000; },
      [](Plan& plan) { plan.graph.tasks[plan.lanes[0].tasks[0]].is_delayed = true; },
      [](Plan& plan) { plan.lanes.clear(); },
      [](Plan& plan) { plan.graph.tasks[0].micro_batch = 1; },
      [](Plan& plan) { plan = schedule_in_order(Graph{}); },
  };
  for (const auto& change : changes) {
    SCOPED_TRACE(&change - changes);
    const UserError e = caught([&] { run_of(lenet(), with_order(changed(change))); });
    EXPECT_EQ(e.field(), "own_order") << e.what();
    EXPECT_EQ(std::string(e.what()).find("internal error"), std::string::npos) << e.what();
  }
  EXPECT_EQ(caught([&] { run_of(lenet(), with_order(changed(changes[0]))); }).value(), "mine");
}

TEST(OwnOrder, IsForOneDeviceAndABatchInOnePiece) {
  RunSetup in_pieces = with_order(schedule_in_order);
  in_pieces.spec.micro_batches = 2;
  EXPECT_EQ(caught([&] { run_of(lenet(), in_pieces); }).field(), "own_order");
}

}  // namespace
}  // namespace overtake
