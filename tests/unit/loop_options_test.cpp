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
  options = {.data = "synthetic:8"};
  EXPECT_TRUE(says(user_error([&] { prepare(options, kSamples, 16); }), {"`batch 16`", "8 samples"}));
}

TEST(LoopOptions, ACheckpointIsOfTheSameRun) {
  CheckpointState state{.seed = 1, .model = "cnn", .settings = {{"lr", 0.1}, {"parts", 2}}};
  LoopOptions options{.seed = 1, .resume = "run", .model = "cnn", .training_settings = {{"lr", 0.1}}};
  EXPECT_NO_THROW(check_same_run(state, options));
  options.training_settings["lr"] = 0.2;
  EXPECT_TRUE(says(user_error([&] { check_same_run(state, options); }), {"`resume run`", "lr 0.1", "0.2"}));
  options.training_settings = {{"lr", 0.1}, {"warmup", 5}};
  EXPECT_TRUE(check_same_run(state, options).empty()) << "it does not know it";
  options.training_settings["parts"] = 3;
  const std::vector<std::string> notes = check_same_run(state, options);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(says(notes[0], {"parts 2", "3", "last bits"}));
  options.model = "lenet";
  EXPECT_TRUE(says(user_error([&] { check_same_run(state, options); }), {"cnn", "lenet"}));
}

}  // namespace
}  // namespace overtake
