// overtake simulate --machine: presets, files of the user's own, and what is said of files that are wrong.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "simulated.h"

namespace overtake::tests {
namespace {

std::string one_device(const std::string& memory) {
  return fmt::format(R"(name = "mine"
[device.gpu]
f32 = "10 TFLOP/s"
memory = {}
[node.box]
devices = {{ gpu = 1 }}
)",
                     memory);
}
const char* const kMain = R"([{ name = "HBM", capacity = "16 GB", bandwidth = "1 TB/s" }])";

TEST(SimulateMachine, TheOldNameOfTheFlagIsTheSameFlag) {
  const std::string job = "simulate resnet-18 --dp 2 --batch 8 --json ";
  const CommandResult machine = overtake(job + "--machine p3.8xlarge"),
                      cluster = overtake(job + "--cluster p3.8xlarge");
  ASSERT_EQ(machine.exit_code, 0) << machine.err;
  EXPECT_EQ(machine.out, cluster.out);
  EXPECT_EQ(machine.json().at("machine"), "p3.8xlarge");
}

TEST(SimulateMachine, TimesAndCapacityAreOfTheOutermostMemory) {
  const ScratchFolder folder;
  write_text(folder / "one.toml", one_device(kMain));
  write_text(folder / "two.toml", one_device(R"([
  { name = "HBM", capacity = "16 GB", bandwidth = "1 TB/s" },
  { name = "L2", capacity = "40 MB", bandwidth = "8 TB/s" },
])"));
  write_text(folder / "slow.toml", one_device(R"([{ capacity = "16 GB", bandwidth = "1 GB/s" }])"));
  write_text(folder / "small.toml", one_device(R"([{ capacity = "10 MB", bandwidth = "1 TB/s" }])"));
  const std::string job = "resnet-18 --batch 8 --machine ";
  nlohmann::json one = simulated(job + (folder / "one.toml")), two = simulated(job + (folder / "two.toml"));
  for (nlohmann::json* run : {&one, &two}) run->at("spec").erase("machine");  // the name of its file
  EXPECT_EQ(one, two);
  EXPECT_GT(step_ms(job + (folder / "slow.toml")), 10 * step_ms(job + (folder / "one.toml")));
  const CommandResult small = overtake("simulate " + job + (folder / "small.toml"));
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_NE(small.err.find("9.54 MiB"), std::string::npos) << small.err;
}

// Two devices over a slow link. The name of a machine, or of its file, means nothing.
std::string two_devices(const std::string& head) {
  return head + R"([device.gpu]
f32 = "10 TFLOP/s"
memory = [{ capacity = "16 GB", bandwidth = "1 TB/s" }]
[node.box]
count = 2
devices = { gpu = 1 }
[switch.tor]
[[link]]
between = ["box/gpu", "tor"]
kind = "Ethernet"
bandwidth = "1 Gb/s"
latency = "50 us"
)";
}

TEST(SimulateMachine, AnIdealNetworkIsAskedForByKeyOrFlag) {
  const ScratchFolder folder;
  write_text(folder / "mine.toml", two_devices("name = \"mine\"\n"));
  write_text(folder / "ideal.toml", two_devices("name = \"ideal\"\n"));
  write_text(folder / "keyed.toml", two_devices("name = \"mine\"\nnetwork = \"ideal\"\n"));
  const std::string job = "resnet-18 --batch 8 --dp 2 --no-slowdown --machine ";
  const double alone = step_ms("resnet-18 --batch 4 --no-slowdown --machine " + (folder / "mine.toml"));
  const double modelled = step_ms(job + (folder / "mine.toml"));
  EXPECT_GT(modelled, 180) << "23 MB of gradients in bfloat16, over 1 Gb/s";
  EXPECT_DOUBLE_EQ(step_ms(job + (folder / "ideal.toml")), modelled);
  EXPECT_LT(step_ms(job + (folder / "keyed.toml")), 1.1 * alone);
  EXPECT_DOUBLE_EQ(step_ms(job + (folder / "mine.toml") + " --network ideal"), step_ms(job + (folder / "keyed.toml")));
  EXPECT_DOUBLE_EQ(step_ms(job + (folder / "keyed.toml") + " --network modelled"), modelled);
  // Switches that add take no time either.
  EXPECT_LT(step_ms("--synthetic stages=4,micro=4 --machine dgx-h100 --network ideal --pipeline 1f1b"), 21.001);
  const CommandResult r = overtake("simulate " + job + (folder / "mine.toml") + " --network fast");
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_NE(r.err.find("--network fast: it is none of ideal, modelled"), std::string::npos) << r.err;
  // A plan keeps its machine, on which another network may be looked at; one for this machine has none described.
  const auto planned = [&](const std::string& flags, const std::string& name) {
    const CommandResult made = overtake("plan ffnn --batch 8 " + flags + " -o " + (folder / name));
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return folder / name;
  };
  const std::string described = planned("--dp 2 --machine " + (folder / "mine.toml"), "described.plan");
  EXPECT_LT(step_ms(described + " --network ideal"), 0.5 * step_ms(described));
  const CommandResult here = overtake("simulate " + planned("--schedule in-order", "here.plan") + " --network ideal");
  EXPECT_EQ(here.exit_code, 2);
  EXPECT_NE(here.err.find("--network ideal: this machine has no described network"), std::string::npos) << here.err;
}

// A rack of 72, a cube of TPUs and a ring of one's own.
TEST(SimulateMachine, LargeNvlinkDomainsAndTori) {
  const nlohmann::json rack = simulated("gpt2 --machine gb200-nvl72 --dp 72 --batch 576");
  EXPECT_EQ(rack.at("machine"), "gb200-nvl72");
  EXPECT_EQ(rack.at("runs")[0].at("devices").size(), 72u);
  const nlohmann::json cube = simulated("resnet-50 --machine tpu-v4:4 --dp 16 --batch 512 --precision bf16");
  EXPECT_EQ(cube.at("runs")[0].at("devices").size(), 16u);
  // A ring uses two of the six links of a chip.
  EXPECT_GT(step_ms("resnet-50 --machine tpu-v4:4 --dp 16 --batch 512 --precision bf16 --algorithm ring"),
            cube.at("step_ms").get<double>());
  const ScratchFolder folder;
  write_text(folder / "ring.toml", R"([device.gpu]
f32 = "10 TFLOP/s"
memory = [{ capacity = "16 GB", bandwidth = "1 TB/s" }]
[node.box]
devices = { gpu = 6 }
[[torus]]
devices = "box/gpu"
shape = [6]
kind = "NVLink"
bandwidth = "25 GB/s"
latency = "1 us"
)");
  EXPECT_GT(step_ms("resnet-18 --machine " + (folder / "ring.toml") + " --dp 6 --batch 48"), 0);
  EXPECT_GT(step_ms("bert-12 --machine " + (folder / "ring.toml") + " --pp 3 --dp 2 --batch 16 --micro-batches 4"), 0);
}

// By the flag, or by a key of the machine file, beside which it lies.
TEST(SimulateMachine, MeasuredKernelsCorrectWhatIsComputed) {
  const ScratchFolder folder;
  write_text(folder / "launch.toml", "[[kernel]]\nkind = \"launch\"\ntime = \"50 us\"\n");
  const std::string machine = one_device(kMain);
  write_text(folder / "plain.toml", machine);
  std::string named = machine;
  named.insert(named.find("[node.box]"), "calibration = \"launch.toml\"\n");
  write_text(folder / "named.toml", named);
  const std::string job = "resnet-18 --batch 8 --machine ";
  const double plain = step_ms(job + (folder / "plain.toml")),
               by_flag = step_ms(job + (folder / "plain.toml") + " --calibrate " + (folder / "launch.toml"));
  EXPECT_GT(by_flag, plain + 50e-3 * 100) << "of each of more than a hundred kernels";
  EXPECT_DOUBLE_EQ(step_ms(job + (folder / "named.toml")), by_flag);
}

TEST(SimulateMachine, MistakesInFilesAreUserErrors) {
  const ScratchFolder folder;
  const std::string path = folder / "mine.toml";
  const auto says = [&](const std::string& text, const std::vector<std::string>& words) {
    write_text(path, text);
    const CommandResult r = overtake("simulate lenet --machine " + path);
    EXPECT_EQ(r.exit_code, 2) << text;
    for (const std::string& word : words) EXPECT_NE(r.err.find(word), std::string::npos) << text << ": " << r.err;
  };
  says("cluster mine\ndevice gpu\n  f32 = 10 TFLOP/s\n",
       {path + ":1: ", "the form that cluster files had before", "docs/machines.md"});
  says("[device.gpu\n", {path + ":1: not TOML: "});
  says("", {path + ":1: node: no section"});
  says(one_device("\"16 GB\""), {path + ":4: memory: not a list of memories"});
  says(one_device(R"([{ capacity = "16 parsec", bandwidth = "1 TB/s" }])"),
       {path + ":4: capacity: ", "\"16 parsec\"", "GiB"});
  says(one_device(kMain) + "colour = 3\n", {path + ":7: unknown key in [node.box]: \"colour\""});
  says(one_device(kMain) + "count = 2\n", {path + ":5: link: missing: ", "cannot reach", "[[link]]"});
}

}  // namespace
}  // namespace overtake::tests
