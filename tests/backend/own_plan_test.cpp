// Runs that have a plan of the caller's.

#include <gtest/gtest.h>

#include "base/error.h"
#include "overtake/zoo.h"
#include "plan/in_order.h"
#include "random_plan.h"
#include "run_setup.h"
#include "test_device.h"

namespace overtake {
namespace {

RunSetup with_plan(std::function<Plan(const Graph&)> plan) {
  RunSetup options = in_order_setup();
  options.more.compile.own_order = std::move(plan);
  use_test_device(options, Precision::f32, 2);
  options.spec.parts = 2;
  options.spec.seed = kSeed;
  return options;
}
Graph lenet() { return build_model("lenet", ModelSettings::parse("batch=4")); }

std::uint64_t after_three_steps(TrainingRun& session) {
  for (std::uint64_t i = 0; i < 3; ++i) {
    session.fill_inputs(i);
    session.step(0.05f);
  }
  return session.weights_hash();
}

TEST(OwnPlan, IsRunAndHasTheWeightsOfInOrder) {
  TrainingRun in_order = run_of(lenet(), with_plan({}));
  std::mt19937 random(1);
  TrainingRun own = run_of(lenet(), with_plan([&](const Graph& g) { return random_plan(g, 2, random); }));
  EXPECT_EQ(own.plan().schedule, "random");
  EXPECT_EQ(own.program().choice().name, "random");
  EXPECT_EQ(after_three_steps(own), after_three_steps(in_order));
}

TEST(OwnPlan, IsRefusedWhereItCannotRun) {
  const auto leaves_out = [](const Graph& g) {
    Plan plan = schedule_in_order(g);
    plan.lanes[0].tasks.pop_back();
    return plan;
  };
  EXPECT_THROW(run_of(lenet(), with_plan(leaves_out)), InternalError);
  const auto backwards = [](const Graph& g) {
    Plan plan = schedule_in_order(g);
    std::ranges::reverse(plan.lanes[0].tasks);
    return plan;
  };
  EXPECT_THROW(run_of(lenet(), with_plan(backwards)), InternalError);
  RunSetup in_pieces = with_plan(schedule_in_order);
  in_pieces.spec.micro_batches = 2;
  EXPECT_THROW(run_of(lenet(), in_pieces), UserError) << "it is for one device";
}

}  // namespace
}  // namespace overtake
