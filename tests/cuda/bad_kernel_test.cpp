// A kernel that fails in the middle of training: an error that says so, at once and for good. In processes of their
// own, because CUDA is of no use to one afterwards.

#include "cuda/bad_kernel.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "cuda/device_array.h"
#include "one_member_plan.h"
#include "overtake/zoo.h"
#include "plan/in_order.h"
#include "plan/memory.h"
#include "run_setup.h"
#include "train/initial_values.h"

namespace overtake {
namespace {

constexpr int kFailed = 7;

[[noreturn]] void end_with_what_fails(const std::function<void()>& train) {
  try {
    train();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::_Exit(kFailed);  // destructors would fail too
  }
  std::_Exit(0);
}

void train_beside_a_bad_kernel() {
  RunSetup options;
  use_gpu(options);
  TrainingRun training = run_of(build_model("cnn", ModelSettings::parse("batch=4")), options);
  training.fill_inputs(1);
  for (int i = 0; i < 3; ++i) training.step(0.01f);
  launch_bad_kernel();
  for (int i = 0; i < 3; ++i) training.step(0.01f);
}

// A plan in which a layer's result lies nowhere.
void train_with_a_bad_plan(const std::string& layer) {
  const auto backend = open_backend("cuda", {.tune = false, .tuning_file = "", .note = {}});
  Plan plan = place_memory(schedule_in_order(
      small_training_graph(*backend, "transformer", "batch=2,layers=2,width=32,heads=2,sequence=8,vocabulary=64")));
  for (TaskId t = 0; t < plan.graph.tasks.size(); ++t)
    if (plan.graph.tasks[t].kind == Kind::forward && plan.graph.layer_name(plan.graph.tasks[t].layer) == layer)
      plan.offsets[plan.graph.writes(t)[0]] = std::uint64_t{1} << 46;
  const auto executor = backend->make_executor({std::move(plan)});
  fill_initial_parameters(*executor, 1);
  fill_random_inputs(*executor, 1);
  executor->run(0, {.step = 0, .seed = 1, .learning_rate = 0.1f});
}

class BadKernelDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(BadKernelDeathTest, EndsTheStep) {
  OVERTAKE_NEEDS_GPU();
  EXPECT_EXIT(end_with_what_fails(train_beside_a_bad_kernel), testing::ExitedWithCode(kFailed),
              "illegal memory access");
}

TEST_F(BadKernelDeathTest, OfTheFirstStepIsNamed) {
  OVERTAKE_NEEDS_GPU();
  const auto train = [] { train_with_a_bad_plan("h.1.ln_2"); };
  EXPECT_EXIT(end_with_what_fails(train), testing::ExitedWithCode(kFailed),
              "task h.1.ln_2.* failed on the GPU: an illegal memory access");
}

}  // namespace
}  // namespace overtake
