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
