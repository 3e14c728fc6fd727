// Runs from files: --spec and --save-spec.

#include <gtest/gtest.h>

#include "command.h"

namespace overtake::tests {
namespace {

const std::string kRun =
    "cnn --set width=4 --batch 16 --data synthetic:128 --seed 3 --lr 0.05 --optimizer adamw --beta2 0.99 "
    "--schedule in-order ";
const std::string kFlags = kRun + "--beta1 0.8 --parts 2 --steps 6 ";

std::string hash_after(const std::string& arguments) {
  const CommandResult r = overtake(arguments + " --json");
  EXPECT_EQ(r.exit_code, 0) << arguments << "\n" << r.err;
  return r.exit_code == 0 ? r.json().at("weights_hash").get<std::string>() : "";
}

void expect_refused(const std::string& arguments, const std::vector<std::string>& words) {
  const CommandResult r = overtake(arguments);
  EXPECT_EQ(r.exit_code, 2) << arguments << "\n" << r.err;
  for (const std::string& word : words)
    EXPECT_NE(r.err.find(word), std::string::npos) << "no '" << word << "' in: " << r.err;
}

TEST(Spec, ASavedRunTrainsToTheSameWeights) {
  const ScratchFolder folder;
  const std::string file = folder / "run.toml";
  const std::string hash = hash_after("train " + kFlags + "--skip-pass fuse --no-layouts --save-spec " + file);
  EXPECT_EQ(hash_after("train --spec " + file), hash);
  EXPECT_NE(hash_after("train --beta1 0.9 --spec " + file), hash) << "flags go before the file";
  EXPECT_NE(hash_after("train --spec " + file + " --seed 4"), hash);
  // The file that is made of a file and flags has both.
  const std::string second = folder / "second.toml";
  const std::string other =
      hash_after("train lenet --set classes=10 --layouts --spec " + file + " --save-spec " + second);
  EXPECT_EQ(hash_after("train --spec " + second), other);
  const std::string text = read_text(second);
  for (const char* line : {"model = \"lenet\"\n", "layouts = true\n", "beta1 = 0.8\n", "skip_pass = [\"fuse\"]\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in:\n" << text;
}

TEST(Spec, IsOfBenchesToo) {
  const ScratchFolder folder;
  const std::string file = folder / "run.toml";
  write_text(file, "model = \"lenet\"\nbatch = 4\ndata = \"fashion-mnist\"\ndp = 2\n");
  const CommandResult r = overtake("bench --steps 1 --schedules in-order --json --spec " + file);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.json().at("model"), "lenet");
}

TEST(Spec, FilesThatAreWrong) {
  const ScratchFolder folder;
  const std::string file = folder / "run.toml", saved = folder / "saved.toml";
  const auto with = [&](const std::string& text) {
    write_text(file, text);
    return "train --spec " + file + " --save-spec " + saved;
  };
  expect_refused("train --spec " + (folder / "none.toml"), {"none.toml", "cannot read"});
  expect_refused(with("model = \"cnn\"\nbatch = = 3\n"), {"run.toml:2", "not TOML"});
  expect_refused(with("model = \"cnn\"\nlearning = 3\n"), {"run.toml:2", "learning", "no such field"});
  expect_refused(with("model = \"cnn\"\n\nbatch = \"x\"\n"), {"run.toml:3", "batch = \"x\"", "a whole number"});
  expect_refused(with("model = \"cnn\"\nbatch = 0\n"), {"run.toml:2", "batch = 0", "at least 1"});
  expect_refused(with("batch = 8\n"), {"--spec", "run.toml", "no model"});
  expect_refused(with("model = \"cnn\"\nbatch = 8\nreduce = \"auto\"\n"), {"--reduce auto", "--dp"});
  expect_refused(with("model = \"cnn\"\ndata = \"none\"\n"), {"none"});
  EXPECT_FALSE(std::filesystem::exists(saved)) << "nothing is saved of a run that cannot be";
  expect_refused("train cnn --save-spec /proc/nope/run.toml", {"/proc/nope"});
  expect_refused("train", {"MODEL"});
  expect_refused("train cnn --augment --no-augment", {"--augment", "both on and off"});
}

TEST(Spec, ResumingWithAnotherBetaIsRefused) {
  const ScratchFolder folder;
  const std::string save = folder / "run";
  hash_after("train " + kFlags + "--save " + save);
  expect_refused("train " + kRun + "--steps 9 --beta1 0.7 --resume " + save, {"--resume", "beta1 0.8", "0.7"});
  expect_refused("train " + kFlags + "--eps 1e-6 --resume " + save, {"--resume", "eps", "1e-06"});
  // Checkpoints of before do not have these. Without --parts, the checkpoint's are taken.
  nlohmann::json checkpoint = nlohmann::json::parse(read_text(save + ".json"));
  for (const char* name : {"beta1", "beta2", "eps", "steps", "device", "skip_pass"}) checkpoint["settings"].erase(name);
  write_as_before(save + ".json", checkpoint);
  const std::string longer = "train " + kRun + "--beta1 0.8 --steps 9 ";
  const std::string on = "--overwrite --save " + (folder / "on") + " --resume " + save;
  EXPECT_EQ(hash_after(longer + on), hash_after(longer + "--parts 2"));
  const CommandResult other = overtake(longer + "--parts 3 " + on);
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_NE(other.err.find("--parts 3 from here on, it was made with --parts 2: the last bits may differ"),
            std::string::npos)
      << other.err;
}

TEST(Spec, RanksOfDifferentRunsDoNotMeet) {
  const ScratchFolder folder;
  const auto start = [&](int rank, const std::string& more) {
    return "OVERTAKE_RANK=" + std::to_string(rank) + " OVERTAKE_SIZE=2 OVERTAKE_LOCAL_RANK=" + std::to_string(rank) +
           " OVERTAKE_JOB=job OVERTAKE_STORE=" + (folder / "store") + " " + OVERTAKE_BINARY +
           " train lenet --batch 16 --data synthetic:64 --steps 2 --pp 2 --micro-batches 2 " + more;
  };
  // The second rank in the background of the first's shell.
  const std::string second = start(1, "--gradient-groups 2 ") + " >/dev/null 2>" + (folder / "second") + " & ";
  const std::string first = start(0, "") + " 2>" + (folder / "first");
  const int status = std::system((second + first + "; code=$?; wait; exit $code").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  for (const char* said : {"first", "second"}) {
    const std::string text = read_text(folder / said);
    EXPECT_NE(text.find("gradient_groups = 2"), std::string::npos) << text;
    EXPECT_EQ(text.find("model ="), std::string::npos) << "only what differs is said: " << text;
  }
}

}  // namespace
}  // namespace overtake::tests
