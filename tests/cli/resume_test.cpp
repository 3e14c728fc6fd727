// Runs that are taken up: what they take from the checkpoint, what may change, and that nothing is lost.

#include <gtest/gtest.h>

#include <map>

#include "command.h"

namespace overtake::tests {
namespace {

const std::string kNetworkToResume = "cnn --set width=4 --batch 16 ";
const std::string kFlagsToResume =
    "--seed 3 --lr 0.05 --lr-schedule step:4:0.5 --warmup 3 --optimizer adamw --weight-decay 0.01 "
    "--schedule in-order --parts 2 ";
const std::string kRunToResume = "train " + kNetworkToResume + kFlagsToResume + "--data synthetic:256 ";

std::string hash_after_all(const CommandResult& r) {
  EXPECT_EQ(r.exit_code, 0) << r.err;
  return r.exit_code == 0 ? r.json().at("weights_hash").get<std::string>() : "";
}

void expect_words(const CommandResult& r, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(r.err.find(word), std::string::npos) << "no '" << word << "' in: " << r.err;
}

// An array as numpy.save writes it.
template <class T>
void write_array(const std::string& path, const std::string& descr, const std::string& shape,
                 const std::vector<T>& values) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((header.size() + 10 + 64) / 64 * 64 - 10, ' ');
  std::string text = std::string("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() % 256);
  text += static_cast<char>(header.size() / 256);
  text += header;
  text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  write_text(path, text);
}

// A run of twelve steps, of which six are done and saved.
class Resume : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(overtake(kRunToResume + "--steps 6 --save " + save_).exit_code, 0); }

  // All that is there, by name.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / ""))
      if (entry.is_regular_file()) all[entry.path().filename().string()] = read_text(entry.path().string());
    return all;
  }
  void expect_refused(const std::string& flags, const std::vector<std::string>& words) const {
    const auto before = files();
    const CommandResult r = overtake("train --resume " + save_ + " " + flags);
    EXPECT_EQ(r.exit_code, 2) << flags << "\n" << r.err;
    expect_words(r, words);
    EXPECT_EQ(r.err.find('{'), std::string::npos) << r.err;
    EXPECT_EQ(files(), before) << flags;
  }

  const ScratchFolder folder_;
  const std::string save_ = folder_ / "run";
};

TEST_F(Resume, TakesItsSettingsFromTheCheckpoint) {
  const CommandResult resumed = overtake("train --steps 12 --json --resume " + save_);
  EXPECT_EQ(hash_after_all(resumed), hash_after_all(overtake(kRunToResume + "--json --steps 12")));
  EXPECT_EQ(resumed.json().at("spec").at("lr_schedule"), "step:4:0.5");
  expect_words(resumed,
               {"it goes on after step 6 of 12, and is saved to " + save_, "--steps 12 from here on", "--steps 6"});
  EXPECT_EQ(nlohmann::json::parse(read_text(save_ + ".json")).at("step"), 12) << "it is saved where it came from";
}

TEST_F(Resume, ElsewhereLeavesTheCheckpointAsItWas) {
  const auto before = files();
  ASSERT_EQ(overtake("train --steps 8 --resume " + save_ + " --save " + (folder_ / "other/run")).exit_code, 0);
  EXPECT_EQ(files(), before);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "other/run.json"));
}

TEST_F(Resume, FewerStepsThanAreDoneAreRefused) {
  expect_refused("--steps 4", {"--steps 4", "has done 6 steps already", "give more"});
  ASSERT_EQ(overtake("train --steps 20 --resume " + save_).exit_code, 0);
  expect_refused("--epochs 1", {"--epochs 1, which is 16 steps", "has done 20 steps already"});
}

TEST_F(Resume, AFinishedRunSaysSo) {
  const auto before = files();
  const CommandResult r = overtake("train --json --resume " + save_);
  EXPECT_EQ(hash_after_all(r), hash_after_all(overtake(kRunToResume + "--json --steps 6")));
  expect_words(r, {"the run in " + save_ + " finished at step 6; give --steps above 6 to go on"});
  EXPECT_EQ(r.err.find("loss"), r.err.find("loss and accuracy say nothing")) << r.err;
  EXPECT_EQ(r.json().at("finished"), true);
  EXPECT_EQ(files(), before);
  EXPECT_EQ(overtake("train --resume " + save_).out, "");
}

TEST_F(Resume, WhatMakesItAnotherRunIsRefusedInTheUsersWords) {
  expect_refused("--batch 64", {"--batch 64: ", "another run", "made with --batch 16", "without --resume"});
  expect_refused("--set width=8", {"--set width=8: ", "--set width=4"});
  expect_refused("--optimizer sgd", {"--optimizer sgd: ", "--optimizer adamw"});
  expect_refused("--augment", {"--augment: ", "--no-augment"});
  expect_refused("lenet", {"MODEL lenet: ", "MODEL cnn"});
  expect_refused("--freeze stem.", {"--freeze stem.: ", "no --freeze"});
}

TEST_F(Resume, WhatMayChangeIsSaid) {
  const CommandResult r =
      overtake("train --steps 8 --lr 0.01 --lr-schedule constant --schedule auto --no-layouts --resume " + save_);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  expect_words(r, {"--lr 0.01 from here on, it was made with --lr 0.05", "--lr-schedule constant from here on",
                   "--schedule auto from here on", "--no-layouts from here on", "the last bits may differ"});
  // It keeps what was changed.
  const CommandResult on = overtake("train --steps 9 --json --resume " + save_);
  ASSERT_EQ(on.exit_code, 0) << on.err;
  EXPECT_EQ(on.json().at("spec").at("lr"), 0.01);
}

// A spec file counts as what it says, defaults too.
TEST_F(Resume, ASpecFileIsGiven) {
  write_text(folder_ / "run.toml", "lr = 0.01\nsteps = 8\n");
  const CommandResult r = overtake("train --json --spec " + (folder_ / "run.toml") + " --resume " + save_);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.json().at("spec").at("lr"), 0.01);
}

TEST_F(Resume, ADamagedSettingIsAUserError) {
  nlohmann::json described = nlohmann::json::parse(read_text(save_ + ".json"));
  described["settings"]["lr"] = "fast";
  write_text(save_ + ".json", described.dump());
  const CommandResult r = overtake("train --steps 12 --resume " + save_);
  EXPECT_EQ(r.exit_code, 2) << r.err;
  expect_words(r, {save_, "damaged"});
}

// The batch is what it was, also where it was the network's own and the layout is another one.
TEST(ResumeLayout, DoesNotChangeTheBatch) {
  const ScratchFolder folder;
  const std::string save = folder / "run";
  ASSERT_EQ(overtake("train lenet --data synthetic:256 --schedule in-order --steps 2 --save " + save).exit_code, 0);
  const CommandResult r = overtake("train --steps 4 --micro-batches 3 --resume " + save);
  EXPECT_EQ(r.exit_code, 2) << r.err;
  expect_words(r, {"--batch", "multiple of 3"});
}

TEST(ResumeData, IsTheSameIfItsContentIs) {
  const ScratchFolder folder;
  std::vector<float> x(40 * 64);
  std::vector<std::int32_t> y(40);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 11);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int32_t>(i % 4);
  const auto data = [&](const std::string& name) {
    write_array(folder / (name + "x.npy"), "<f4", "(40, 1, 8, 8)", x);
    write_array(folder / (name + "y.npy"), "<i4", "(40,)", y);
    return "--data npy:" + (folder / (name + "x.npy")) + "," + (folder / (name + "y.npy")) + " ";
  };
  const std::string run = "train ffnn --set image=8,width=8,classes=4 --batch 4 --schedule in-order --json ";
  const std::string save = folder / "run", first = data("first");
  ASSERT_EQ(overtake(run + first + "--steps 3 --save " + save).exit_code, 0);
  const std::string copies = " --overwrite --save " + (folder / "copies") + " --steps 6 --json --resume " + save + " ";
  const CommandResult moved = overtake("train" + copies + data("second"));
  EXPECT_EQ(hash_after_all(moved), hash_after_all(overtake(run + first + "--steps 6")));
  expect_words(moved, {"second", "with the same content as"});
  // One label of forty is another.
  y[7] = 3 - y[7];
  for (const std::string name : {"third", "first"}) {
    const std::string flags = data(name);
    const CommandResult r = overtake("train" + copies + (name == "first" ? "" : flags));
    EXPECT_EQ(r.exit_code, 2) << r.err;
    expect_words(r, {name, "its content is not what the run in", "36 samples of", "the same data"});
  }
}

TEST(TrainData, IsNamed) {
  const CommandResult r = overtake(kRunToResume + "--steps 4 --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  expect_words(r, {"cnn: ", " parameters, 16 samples in a step\n",
                   "data: synthetic:256: 256 training samples, 32 test samples, 10 classes; they are made-up numbers"});
  EXPECT_EQ(
      r.json().at("data"),
      nlohmann::json(
          {{"name", "synthetic:256"}, {"samples", 256}, {"test_samples", 32}, {"classes", 10}, {"is_made_up", true}}));
  const CommandResult unnamed = overtake("train " + kNetworkToResume + kFlagsToResume + "--steps 4");
  expect_words(unnamed, {"data: synthetic: 4096 training samples"});
}

}  // namespace
}  // namespace overtake::tests
