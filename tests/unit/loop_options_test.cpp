// What is wrong with a run's options is found before a session is planned for it.

#include <gtest/gtest.h>

#include "base/error.h"
#include "train/loop.h"

namespace overtake {
namespace {

const SampleForm kSamples{.input_dims = {1, 8, 8}, .classes = 10};

std::string error_of(LoopOptions options) {
  options.data = "synthetic:64";
  try {
    prepare(options, kSamples, 16);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(LoopOptions, RatesAndDataAreLookedAtFirst) {
  LoopOptions options{.data = "synthetic:64"};
  prepare(options, kSamples, 16);
  ASSERT_TRUE(options.opened);
  EXPECT_EQ(options.opened->train->size(), 64);

  EXPECT_NE(error_of({.learning_rate = -1}).find("--lr"), std::string::npos);
  EXPECT_NE(error_of({.lr_schedule = "zigzag"}).find("zigzag"), std::string::npos);
  EXPECT_NE(error_of({.steps = 10, .warmup = 10}).find("--warmup"), std::string::npos);
  // Four steps in an epoch.
  EXPECT_EQ(error_of({.epochs = 3, .warmup = 11}), "");
  EXPECT_NE(error_of({.epochs = 3, .warmup = 12}).find("--warmup"), std::string::npos);
  options = {.data = "synthetic:8"};
  EXPECT_THROW(prepare(options, kSamples, 16), UserError) << "fewer samples than a batch";
}

TEST(LoopOptions, ACheckpointIsOfTheSameRun) {
  CheckpointState state{.seed = 1, .model = "cnn", .settings = {{"lr", 0.1}, {"parts", 2}}};
  LoopOptions options{.seed = 1, .resume = "run", .model = "cnn", .training_settings = {{"lr", 0.1}}};
  EXPECT_NO_THROW(check_same_run(state, options));
  options.training_settings["lr"] = 0.2;
  EXPECT_THROW(check_same_run(state, options), UserError);
  options.training_settings = {{"lr", 0.1}, {"warmup", 5}};
  EXPECT_THROW(check_same_run(state, options), UserError) << "a setting that the checkpoint does not know";
  options.training_settings.erase("warmup");
  options.model = "lenet";
  EXPECT_THROW(check_same_run(state, options), UserError);
}

}  // namespace
}  // namespace overtake
