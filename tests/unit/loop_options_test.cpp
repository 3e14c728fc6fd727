// What is wrong with a run's options is found before it is planned.

#include <gtest/gtest.h>

#include "train/loop.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

const SampleForm kSamples{.input_dims = {1, 8, 8}, .classes = 10};

// 64 samples: four steps in an epoch.
void prepare_for_sixteen(LoopOptions options) {
  options.data = "synthetic:64";
  prepare(options, kSamples, 16);
}
std::string loop_error(const LoopOptions& options) {
  return user_error([&] { prepare_for_sixteen(options); });
}

TEST(LoopOptions, RatesAndDataAreLookedAtFirst) {
  LoopOptions options{.data = "synthetic:64"};
  prepare(options, kSamples, 16);
  ASSERT_TRUE(options.opened);
  EXPECT_EQ(options.opened->train->size(), 64);

  EXPECT_TRUE(says(loop_error({.learning_rate = -1}), {"`lr -1`"}));
  EXPECT_TRUE(says(loop_error({.lr_schedule = "zigzag"}), {"`lr_schedule zigzag`"}));
  EXPECT_TRUE(says(loop_error({.steps = 10, .warmup = 10}), {"`warmup "}));
  EXPECT_NO_THROW(prepare_for_sixteen({.epochs = 3, .warmup = 11}));
  EXPECT_TRUE(says(loop_error({.epochs = 3, .warmup = 12}), {"`warmup "}));
  EXPECT_EQ(options.total, 4u);
  options = {.data = "synthetic:8"};
  EXPECT_TRUE(says(user_error([&] { prepare(options, kSamples, 16); }), {"`batch 16`", "8 samples"}));
}

TEST(LoopOptions, ACheckpointIsOfTheSameRun) {
  CheckpointState state{.seed = 1, .model = "cnn", .settings = {{"lr", 0.1}, {"parts", 2}}};
  LoopOptions options{.seed = 1, .resume = "run", .model = "cnn", .training_settings = {{"lr", 0.1}}};
  const auto check = [&] { return check_same_run(all_settings(state), state.step, options); };
  options.training_settings["parts"] = 2;
  EXPECT_TRUE(check().empty());
  options.training_settings["lr"] = 0.2;
  ASSERT_EQ(check().size(), 1u);
  EXPECT_TRUE(says(check()[0], {"`resume run`", "`lr 0.2`", "`lr 0.1`"}));
  options.training_settings = {{"lr", 0.1}, {"warmup", 5}, {"parts", 2}};
  EXPECT_TRUE(check().empty()) << "it does not know it";
  options.training_settings["parts"] = 3;
  ASSERT_EQ(check().size(), 1u);
  EXPECT_TRUE(says(check()[0], {"`parts 2`", "`parts 3`", "last bits"}));
  options.model = "lenet";
  EXPECT_TRUE(says(user_error(check), {"`model lenet`", "`model cnn`"}));
  options.model = "cnn";
  options.model_settings = {{"batch", 64.0}};
  state.model_settings = {{"batch", 16.0}, {"width", 4.0}};
  EXPECT_TRUE(says(user_error(check), {"no `set`", "`set width=4`"}));
  options.model_settings["width"] = 4.0;
  EXPECT_TRUE(says(user_error(check), {"`batch 64`", "`batch 16`"}));
  options.model_settings["batch"] = 16.0;
  state.step = 9;
  options.total = 8;
  options.steps = 8;
  EXPECT_TRUE(says(user_error(check), {"`steps 8`", "9 steps already"}));
  options.steps = 0;
  EXPECT_TRUE(says(user_error(check), {"`epochs 1`, which is 8 steps", "9 steps already"}));
}

}  // namespace
}  // namespace overtake
