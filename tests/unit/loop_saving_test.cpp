// Training goes on where a checkpoint cannot be written.

#include <gtest/gtest.h>

#include <optional>

#include "limited_files.h"
#include "overtake/zoo.h"
#include "run_setup.h"
#include "temporary_folder.h"
#include "train/loop.h"

namespace overtake {
namespace {

class LoopSaving : public ::testing::Test {
 protected:
  LoopOptions options() {
    return {.data = "synthetic:64",
            .steps = 10,
            .save = path(),
            .save_every = 2,
            .keep = 10,
            .note = [this](const std::string& line) { notes_.push_back(line); }};
  }
  std::string path() const { return (folder_.path() / "run").string(); }

  // The disk is full from the save after step `from` on, until that after step `to`.
  LoopResult train(std::uint64_t from, std::uint64_t to) {
    RunSetup setup = in_order_setup();
    setup.spec.threads = 1;
    TrainingRun run = run_of(build_model("lenet", ModelSettings::parse("batch=4")), setup);
    std::optional<LimitedFiles> full;
    const LoopOptions loop = options();
    return run_training(
        run, loop, [](const Progress&) {},
        [&] {
          const std::uint64_t done = run.steps_done();
          if (done + 1 == from && !full) full.emplace(100'000);
          if (done + 1 == to) full.reset();
          return false;
        });
  }
  std::vector<std::uint64_t> steps_on_disk() const {
    std::vector<std::uint64_t> steps;
    for (const Generation& g : generations_beside(path() + ".json")) steps.push_back(g.step);
    return steps;
  }

  const TemporaryFolder folder_;
  std::vector<std::string> notes_;
};

TEST_F(LoopSaving, TheNextSaveTriesAgain) {
  const LoopResult result = train(4, 6);
  EXPECT_EQ(result.steps, 10u);
  EXPECT_EQ(result.not_saved, "");
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_TRUE(says(notes_[0], {"`save ", "step 4 is not saved", "cannot write", "the last good one is of step 2",
                               "training goes on"}));
  EXPECT_EQ(steps_on_disk(), (std::vector<std::uint64_t>{2, 6, 8, 10}));
}

TEST_F(LoopSaving, AnEndThatIsNotSavedIsTold) {
  const LoopResult result = train(8, 100);
  EXPECT_EQ(result.steps, 10u);
  EXPECT_GT(result.test.samples, 0) << "it is evaluated all the same";
  EXPECT_TRUE(says(result.not_saved, {"`save ", "step 10 is not saved", "the last good one is of step 6"}));
  EXPECT_EQ(load_checkpoint(path()).step, 6u);
}

TEST_F(LoopSaving, WithoutAnyCheckpoint) {
  const LoopResult result = train(1, 100);
  EXPECT_TRUE(says(result.not_saved, {"step 10 is not saved", "there is none before it"}));
  EXPECT_EQ(notes_.size(), 4u);
}

TEST_F(LoopSaving, WhatACheckpointCannotKeep) {
  LoopOptions loop = options();
  loop.training_settings = {{"data", "text:\xff.txt"}};
  EXPECT_TRUE(says(user_error([&] { open_saver(loop); }), {"`data text:", "not UTF-8", "`save`"}));
}

}  // namespace
}  // namespace overtake
