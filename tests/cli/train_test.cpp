// The train command: what it reports, and that stopping and going on changes nothing.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/hash.h"
#include "base/safetensors.h"
#include "command.h"

namespace overtake::tests {
namespace {

// Small enough to take seconds, large enough that steps overlap saves. Data from the seed, so nothing is needed.
const std::string kSmall =
    "train cnn --set width=4 --batch 16 --data synthetic:512 --seed 3 --lr 0.05 --schedule in-order ";

std::string hash_of(const CommandResult& r) { return r.json().at("weights_hash").get<std::string>(); }

TEST(Train, ReportsWhatItDid) {
  const CommandResult r = overtake(kSmall + "--steps 120 --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto printed = r.json();
  EXPECT_EQ(printed.at("steps"), 120);
  EXPECT_GT(printed.at("loss").get<double>(), 0);
  EXPECT_GT(printed.at("accuracy").get<double>(), 0.5);  // ten classes with something to learn
  EXPECT_GT(printed.at("step_ms").get<double>(), 0);
  EXPECT_GT(printed.at("peak_bytes").get<std::int64_t>(), 0);
  EXPECT_EQ(printed.at("weights_hash").get<std::string>().size(), 16u);
}

TEST(Train, SchedulesThreadsAndLanesGiveTheSameWeights) {
  const std::string base = "train lenet --batch 16 --data synthetic:256 --steps 12 --lr 0.05 --parts 2 --json ";
  const std::string expected = hash_of(overtake(base + "--schedule in-order --threads 2"));
  EXPECT_EQ(hash_of(overtake(base + "--schedule ooo --threads 2")), expected);
  EXPECT_EQ(hash_of(overtake(base + "--schedule ooo --threads 1")), expected);
  EXPECT_EQ(hash_of(overtake(base + "--schedule auto --threads 3")), expected);
  EXPECT_NE(hash_of(overtake(base + "--schedule in-order --seed 1")), expected);
}

TEST(Train, MicroBatchesOfOneDeviceRunOutOfOrder) {
  const std::string base = "train lenet --batch 16 --micro-batches 4 --data synthetic:256 --steps 4 --parts 2 --json ";
  const CommandResult in_order = overtake(base + "--schedule in-order"), ooo = overtake(base + "--schedule ooo");
  ASSERT_EQ(ooo.exit_code, 0) << ooo.err;
  EXPECT_EQ(in_order.json().at("schedule"), "in-order");
  EXPECT_EQ(ooo.json().at("schedule"), "ooo");
  EXPECT_EQ(hash_of(ooo), hash_of(in_order));
}

TEST(Train, ResumeIsAsIfNeverStopped) {
  const ScratchFolder folder;
  for (const std::string optimizer : {"--optimizer sgd --momentum 0.9 --nesterov", "--optimizer adamw --clip-norm 1"}) {
    const std::string run = kSmall + optimizer + " --lr-schedule step:20:0.5 --json ";
    const std::string straight = hash_of(overtake(run + "--steps 50"));
    const std::string save = folder / "half";
    ASSERT_EQ(overtake(run + "--steps 23 --overwrite --save " + save).exit_code, 0);
    const CommandResult resumed = overtake(run + "--steps 50 --resume " + save + " --save " + save);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(hash_of(resumed), straight);
  }
}

// A checkpoint whose network is not what the model's name and settings stand for: one that was pruned is like that.
TEST(Train, ResumesANetworkWhoseShapeHasChanged) {
  const ScratchFolder folder;
  const std::string flags = " --batch 16 --data synthetic:512 --seed 3 --schedule in-order --parts 2 --json ";
  const std::string wide = "train cnn --set width=6" + flags, narrow = "train cnn --set width=4" + flags;
  const std::string save = folder / "wide", straight = hash_of(overtake(wide + "--steps 8"));
  ASSERT_EQ(overtake(wide + "--steps 4 --save " + save).exit_code, 0);
  nlohmann::json described = nlohmann::json::parse(read_text(save + ".json"));
  described["model"]["settings"]["width"] = 4;
  write_as_before(save + ".json", described);
  const std::string on = "--steps 8 --overwrite --save " + (folder / "on") + " --resume " + save;
  const CommandResult resumed = overtake(narrow + on);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("its network is not that of cnn any more"), std::string::npos) << resumed.err;
  EXPECT_EQ(hash_of(resumed), straight);
  // Only rank 0 reads the checkpoint; the others get the network from it.
  const CommandResult stages = overtake("launch -n 2 -- " + narrow + "--pp 2 " + on);
  ASSERT_EQ(stages.exit_code, 0) << stages.err;
  EXPECT_EQ(hash_of(stages), straight);
  const CommandResult pieces = overtake(narrow + "--micro-batches 2 " + on);
  EXPECT_EQ(pieces.exit_code, 2);
  EXPECT_NE(pieces.err.find("--micro-batches"), std::string::npos) << pieces.err;
}

// Without states of an optimizer a checkpoint's tensors are the weights that another run can start from.
TEST(Train, StartsFromTheTensorsOfACheckpoint) {
  const ScratchFolder folder;
  const std::string save = folder / "plain";
  ASSERT_EQ(overtake(kSmall + "--momentum 0 --steps 2 --save " + save).exit_code, 0);
  const auto file = nlohmann::json::parse(read_text(save + ".json"))["tensors"]["file"].get<std::string>();
  const CommandResult started = overtake(kSmall + "--momentum 0 --steps 2 --json --init " + (folder / file));
  EXPECT_EQ(started.exit_code, 0) << started.err;
}

// Those of earlier versions have no network in them.
TEST(Train, ResumesWithoutANetworkInTheCheckpoint) {
  const ScratchFolder folder;
  const std::string save = folder / "old";
  ASSERT_EQ(overtake(kSmall + "--steps 4 --save " + save).exit_code, 0);
  nlohmann::json described = nlohmann::json::parse(read_text(save + ".json"));
  const std::filesystem::path tensors = folder / described["tensors"]["file"].get<std::string>();
  TensorFile file = read_safetensors(tensors);
  EXPECT_EQ(std::erase_if(file.tensors, [](const NamedTensor& t) { return t.name == "overtake.network"; }), 1u);
  described["tensors"]["hash"] = hash_text(write_safetensors(tensors, file.tensors, file.metadata).hash);
  write_as_before(save + ".json", described, /*version=*/1);
  EXPECT_EQ(hash_of(overtake(kSmall + "--json --steps 8 --resume " + save)),
            hash_of(overtake(kSmall + "--json --steps 8")));
}

TEST(Train, KilledAtAnyMomentItGoesOnToTheSameWeights) {
  const ScratchFolder folder;
  const std::string straight = hash_of(overtake(kSmall + "--steps 60 --json"));
  std::mt19937 random(7);
  const std::string save = folder / "killed";
  int kills = 0;
  // Killed and resumed again and again, until a run reaches the end.
  for (bool is_done = false; !is_done && kills < 120;) {
    std::vector<std::string> arguments = {
        "train",        "cnn", "--set",  "width=4", "--batch",    "16",       "--data",  "synthetic:512",
        "--seed",       "3",   "--lr",   "0.05",    "--schedule", "in-order", "--steps", "60",
        "--save-every", "1",   "--save", save};
    if (std::filesystem::exists(save + ".json")) arguments.insert(arguments.end(), {"--resume", save});
    const pid_t child = start_overtake(arguments);
    siginfo_t ended{};
    const auto wait_us = std::uniform_int_distribution<int>(20'000, 400'000)(random);
    int status = 0;
    // Every other time not before it has saved, however long a busy machine takes to come there.
    const std::string before = read_text(save + ".json");
    while (kills % 2 == 1 && read_text(save + ".json") == before &&
           waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::microseconds(wait_us));
    if (waitpid(child, &status, WNOHANG) == child) {
      is_done = true;
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    } else {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      ++kills;
    }
  }
  EXPECT_GE(kills, 2);
  const CommandResult last = overtake(kSmall + "--steps 60 --json --resume " + save);
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(hash_of(last), straight);
}

TEST(Train, CtrlCSavesAndLeaves) {
  const ScratchFolder folder;
  const std::string save = folder / "stopped";
  const pid_t child =
      start_overtake({"train",        "cnn", "--set",  "width=4", "--batch",    "16",       "--data",  "synthetic:512",
                      "--seed",       "3",   "--lr",   "0.05",    "--schedule", "in-order", "--steps", "100000000",
                      "--save-every", "5",   "--save", save});
  while (!std::filesystem::exists(save + ".json")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  const auto saved = nlohmann::json::parse(read_text(save + ".json"));
  const auto steps = saved.at("step").get<std::uint64_t>();
  ASSERT_GT(steps, 0u);
  const std::string to = std::to_string(steps + 5);
  EXPECT_EQ(hash_of(overtake(kSmall + "--json --steps " + to + " --resume " + save)),
            hash_of(overtake(kSmall + "--json --steps " + to)));
}

TEST(Train, TraceHasOneTrackPerLane) {
  const ScratchFolder folder;
  const std::string trace = folder / "trace.json";
  const CommandResult r =
      overtake("train lenet --batch 1 --data synthetic:64 --steps 4 --schedule ooo --trace " + trace);
  ASSERT_EQ(r.exit_code, 0);
  const auto written = nlohmann::json::parse(read_text(trace));
  std::map<int, std::string> names;  // of threads
  for (const auto& e : written.at("traceEvents"))
    if (e.at("name") == "thread_name") names[e.at("tid")] = e.at("args").at("name");
  std::set<std::string> lanes, kinds;
  for (const auto& e : written.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    lanes.insert(names.at(e.at("tid")));
    kinds.insert(e.at("cat").get<std::string>());
    EXPECT_GE(e.at("dur").get<double>(), 0);
  }
  // How many lanes pay is measured, so it may differ from run to run.
  const bool has_two = (r.out + r.err).find("on 2 lane") != std::string::npos;
  EXPECT_EQ(lanes,
            has_two ? (std::set<std::string>{"main lane", "side lane 1"}) : (std::set<std::string>{"main lane"}));
  EXPECT_EQ(names.size(), lanes.size());
  EXPECT_EQ(kinds, (std::set<std::string>{"forward", "input_grad", "weight_grad", "update"}));
}

TEST(Train, TextAndNpyData) {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick brown fox jumps over the lazy dog " + std::to_string(i % 7) + "\n";
  write_text(folder / "a.txt", text);
  const CommandResult r = overtake(
      "train transformer --set layers=1,width=32,heads=4,sequence=16,batch=8 --optimizer adamw"
      " --lr 0.01 --steps 30 --schedule in-order --json --data text:" +
      (folder / "a.txt"));
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_LT(r.json().at("test_loss").get<double>(), 3.0);  // from ln 256 = 5.5
}

// Attention op by op computes what the one kernel does.
TEST(Train, PlainAttentionIsTheSameAttention) {
  for (const char* network : {"gpt2 --set layers=2,width=32,heads=2,vocabulary=67,dropout=0,sequence=16,positions=16",
                              "bert-12 --set layers=2,width=32,heads=2,vocabulary=67,dropout=0,sequence=16"}) {
    const auto loss = [&](const char* setting) {
      const CommandResult r =
          overtake(fmt::format("train {}{} --batch 4 --data synthetic:16 --steps 4 --lr 0.1 "
                               "--schedule in-order --skip-pass recognise --json",
                               network, setting));
      EXPECT_EQ(r.exit_code, 0) << r.err;
      return r.exit_code == 0 ? r.json().at("loss").get<double>() : 0.0;
    };
    const double one_kernel = loss("");
    EXPECT_GT(one_kernel, 0) << network;
    EXPECT_NEAR(loss(",plain_attention=1"), one_kernel, 1e-4 * one_kernel) << network;
  }
}

}  // namespace
}  // namespace overtake::tests
