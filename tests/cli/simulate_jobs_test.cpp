// overtake simulate: devices of several kinds, measured times, several jobs on one cluster, devices that are gone.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "simulated.h"

namespace overtake::tests {
namespace {

double busy_ms(const nlohmann::json& run, std::size_t device) {
  return run.at("runs")[0].at("devices")[device].at("busy_ms").get<double>();
}
void says(const std::string& arguments, const std::vector<std::string>& words) {
  const CommandResult r = overtake("simulate " + arguments);
  EXPECT_EQ(r.exit_code, 2) << arguments;
  for (const std::string& word : words) EXPECT_NE(r.err.find(word), std::string::npos) << arguments << ": " << r.err;
}

// Two devices of different kinds; transfers between them take no time.
std::string two_kinds(const std::string& first, const std::string& second) {
  return fmt::format(R"(name = "two kinds"
network = "ideal"
[device.a]
{}
[device.b]
{}
[node.n]
devices = {{ a = 1, b = 1 }}
[switch.s]
[[link]]
between = [["n/a", "s"], ["n/b", "s"]]
kind = "NVLink"
bandwidth = "1 GB/s"
latency = "5 us"
)",
                     first, second);
}
const char* const kFast = R"(f32 = "10 TFLOP/s"
memory = [{ capacity = "16 GB", bandwidth = "1000 GB/s" }])";
const char* const kSlow = R"(f32 = "1 TFLOP/s"
memory = [{ capacity = "200 MB", bandwidth = "100 GB/s" }])";
std::string measured_in(const std::string& profile) {
  return fmt::format("profile = \"{}\"\nmemory = [{{ capacity = \"16 GB\" }}]", profile);
}

TEST(SimulateKinds, EveryDeviceHasItsOwnTimes) {
  const ScratchFolder folder;
  write_text(folder / "two.toml", two_kinds(kFast, kSlow));
  // On one device updates would go together, which they do not over several.
  const std::string base =
      "transformer --set width=256,heads=4,layers=4,sequence=128 --precision f32 --skip-pass group_updates --machine " +
      (folder / "two.toml");
  const double fast = step_ms(base + " --batch 4 --devices 0"), slow = step_ms(base + " --batch 4 --devices 1");
  EXPECT_GT(slow, 3 * fast);
  // Data parallel each computes as long as alone, and the slower one says how long a step takes.
  const nlohmann::json both = simulated(base + " --batch 8 --dp 2");
  EXPECT_NEAR(busy_ms(both, 0), fast, 1e-3 * fast);
  EXPECT_NEAR(busy_ms(both, 1), slow, 1e-3 * slow);
  EXPECT_NEAR(both.at("step_ms").get<double>(), slow, 1e-3 * slow);
  const nlohmann::json swapped = simulated(base + " --batch 8 --dp 2 --devices 1,0");
  EXPECT_NEAR(busy_ms(swapped, 0), slow, 1e-3 * slow);
}

// Stages are cut for the devices' own speeds, so both take about as long for a micro-batch: of ten layers the slow
// device has about one. GPipe with a first stage that is no faster than the second: m (F1 + B1) + F2 + B2 and the first
// one's update, where B has W in it.
TEST(SimulateKinds, PipelineOfTwoKinds) {
  const ScratchFolder folder;
  write_text(folder / "two.toml", two_kinds(kFast, kSlow));
  const std::string base =
      "transformer --set width=256,heads=4,layers=10,sequence=128 --precision f32 --steps 1 --pp 2 --pipeline gpipe "
      "--no-slowdown --machine " +
      (folder / "two.toml");
  const nlohmann::json one = simulated(base + " --batch 4 --micro-batches 1"),
                       four = simulated(base + " --batch 16 --micro-batches 4");
  const double second = (busy_ms(four, 1) - busy_ms(one, 1)) / 3;
  EXPECT_NEAR(second, (busy_ms(four, 0) - busy_ms(one, 0)) / 3, 0.2 * second);
  EXPECT_NEAR(four.at("step_ms").get<double>(), busy_ms(four, 0) + second, 1e-4);
}

TEST(SimulateKinds, EveryDeviceHasItsOwnMemory) {
  const ScratchFolder folder;
  write_text(folder / "two.toml", two_kinds(kFast, kSlow));
  const std::string base = "resnet-18 --batch 16 --machine " + (folder / "two.toml");
  EXPECT_GT(step_ms(base + " --devices 0"), 0);
  says(base + " --devices 1", {"needs", "191 MiB"});
  EXPECT_GT(step_ms(base + " --devices 1 --memory-cap 8G"), 0);
  says(base + " --devices 2", {"no device 2", "0 to 1"});
  says(base + " --devices 0,1", {"2 are given"});
  says(base + " --dp 2 --devices 0,0", {"device 0", "twice"});
  says(base + " --devices 1-0", {"--devices 1-0"});
}

TEST(SimulateProfile, MeasuredTimesStandForADevice) {
  const ScratchFolder folder;
  const std::string lenet = "lenet --precision f32 ";
  const double measured =
      step_ms(lenet + "--batch 16 --measure cpu --cluster cpu-hosts --save-profile " + (folder / "lenet.json"));
  EXPECT_GT(measured, 0);
  // The file is named as it lies beside the machine's; rates are of no matter.
  write_text(folder / "one.toml", two_kinds(measured_in("lenet.json"), kSlow));
  const std::string here = lenet + "--machine " + (folder / "one.toml");
  EXPECT_DOUBLE_EQ(step_ms(here + " --batch 16"), measured);
  // On one device a step is the sum of its tasks.
  nlohmann::json file = nlohmann::json::parse(read_text(folder / "lenet.json"));
  const auto ns_of_tasks = file.at("ns").get<std::vector<std::int64_t>>();
  EXPECT_NEAR(measured, 1e-6 * static_cast<double>(std::reduce(ns_of_tasks.begin(), ns_of_tasks.end())), 1e-9);
  // Half as fast.
  for (auto& ns : file.at("ns")) ns = 2 * ns.get<std::int64_t>();
  write_text(folder / "half.json", file.dump());
  write_text(folder / "both.toml", two_kinds(measured_in("lenet.json"), measured_in("half.json")));
  const nlohmann::json both = simulated(lenet + "--batch 32 --dp 2 --machine " + (folder / "both.toml"));
  EXPECT_NEAR(busy_ms(both, 0), measured, 1e-3 * measured);
  EXPECT_NEAR(busy_ms(both, 1), 2 * measured, 1e-3 * measured);
  // One measured, one described.
  const double described = step_ms(here + " --batch 16 --devices 1");
  const nlohmann::json mixed = simulated(here + " --batch 32 --dp 2");
  EXPECT_NEAR(busy_ms(mixed, 0), measured, 1e-3 * measured);
  EXPECT_GT(described, 0);

  says(here + " --batch 32", {"lenet.json", "16 samples", "32 samples", "--save-profile"});
  says(here + " --batch 16 --optimizer adamw", {"adamw", "sgd"});
  says("cnn --precision f32 --batch 16 --machine " + (folder / "one.toml"), {"is of lenet", "this step is of cnn"});
  says(here + " --batch 16 --measure cpu", {"--measure cpu", "lenet.json"});
  says(lenet + "--dp 2 --measure cpu --machine " + (folder / "both.toml"), {"--measure cpu", "profile"});
  write_text(folder / "rates.toml", two_kinds(kFast, kSlow));
  says(lenet + "--dp 2 --measure cpu --machine " + (folder / "rates.toml"), {"2 kinds", "--save-profile"});
  says(lenet + "--save-profile x.json", {"--save-profile x.json", "--measure"});
  says(lenet + "--measure cpu --save-profile x.json --sweep dp=1,2", {"--save-profile", "--sweep"});
  file["ns"].erase(0);
  write_text(folder / "lenet.json", file.dump());
  says(here + " --batch 16", {"lenet.json", "times for", "tasks"});
  write_text(folder / "lenet.json", "{\"measured_step\": 1}");
  says(here + " --batch 16", {"lenet.json", "damaged or no profile"});
  std::filesystem::remove(folder / "lenet.json");
  says(here + " --batch 16", {"lenet.json"});
}

TEST(SimulateJobs, ShareDevicesAndLinks) {
  const auto ms = [](const nlohmann::json& out, std::size_t job, const char* what) {
    return out.at("jobs").at(job).at(what).get<double>();
  };
  // Two on one device, which they share evenly; then on devices of their own.
  nlohmann::json out = simulated("--synthetic stages=1,micro=2 --beside '--synthetic stages=1,micro=2 --devices 0'");
  for (const std::size_t j : {0u, 1u}) {
    EXPECT_DOUBLE_EQ(ms(out, j, "alone_ms"), 6);
    EXPECT_DOUBLE_EQ(ms(out, j, "step_ms"), 12);
  }
  out = simulated("--synthetic stages=2,micro=4 --beside '--synthetic stages=1' --beside '--synthetic stages=1,f=5'");
  EXPECT_DOUBLE_EQ(ms(out, 0, "step_ms"), (4 + 2 - 1) * 3);
  EXPECT_DOUBLE_EQ(ms(out, 1, "step_ms"), 3);
  EXPECT_DOUBLE_EQ(ms(out, 2, "step_ms"), 7);
  EXPECT_EQ(out.at("jobs")[2].at("devices"), nlohmann::json({3}));
  EXPECT_DOUBLE_EQ(out.at("step_ms").get<double>(), 15);

  // Across one cable of each node, or each inside its own.
  const std::string job = "resnet-50 --dp 2 --batch 64 --devices ";
  out = simulated(job + "0,4 --cluster p3.8xlarge:2 --beside '" + job + "1,5'");
  EXPECT_GT(ms(out, 0, "step_ms"), 1.3 * ms(out, 0, "alone_ms"));
  EXPECT_NEAR(ms(out, 0, "step_ms"), ms(out, 1, "step_ms"), 0.01 * ms(out, 0, "step_ms"));
  out = simulated(job + "0,1 --cluster p3.8xlarge:2 --beside '" + job + "6,7'");
  for (const std::size_t j : {0u, 1u}) EXPECT_NEAR(ms(out, j, "step_ms"), ms(out, j, "alone_ms"), 1e-3);
  // A short job goes on as long as the long one.
  out = simulated(job + "0,4 --cluster p3.8xlarge:2 --beside 'lenet --dp 2 --batch 64 --devices 1,5'");
  for (const std::size_t j : {0u, 1u}) EXPECT_GT(ms(out, j, "step_ms"), 1.02 * ms(out, j, "alone_ms"));

  const ScratchFolder folder;
  EXPECT_EQ(overtake("simulate lenet --cluster p3.8xlarge --beside cnn --trace " + (folder / "t.json")).exit_code, 0);
  for (const char* model : {"lenet", "cnn"})
    EXPECT_NE(read_text(folder / "t.json").find(model), std::string::npos) << model;

  says("lenet --cluster p3.8xlarge --dp 3 --beside 'lenet --dp 2'", {"2 devices", "1 of 4 are free", "--devices"});
  says("resnet-18 --batch 16 --memory-cap 400M --beside 'resnet-18 --batch 16 --devices 0'",
       {"device 0", "together", "400 MiB"});
  says("lenet --beside 'lenet --colour 3'", {"--beside", "--colour"});
  says("lenet --beside '--dp 2'", {"--beside", "MODEL"});
  says("lenet --cluster p3.8xlarge --beside lenet --compare all", {"--compare", "--beside"});
}

TEST(SimulateFailure, TellsWhoWaitsForWhom) {
  const std::string gone = "--synthetic stages=3,micro=4 --pipeline gpipe --fail 1:2.7";
  const CommandResult table = overtake("simulate " + gone);
  EXPECT_EQ(table.exit_code, 2);
  for (const char* word : {"0 of 1 steps done", "the device is gone", "waits for", "tasks begun", "unit.1/unit.0"})
    EXPECT_NE(table.out.find(word), std::string::npos) << word << ": " << table.out;
  EXPECT_NE(table.err.find("does not end"), std::string::npos) << table.err;

  const CommandResult as_json = overtake("simulate " + gone + " --json");
  EXPECT_EQ(as_json.exit_code, 2);
  const nlohmann::json out = as_json.json();
  EXPECT_FALSE(out.at("is_finished").get<bool>());
  EXPECT_EQ(out.at("steps_done"), 0);
  const auto& devices = out.at("devices");
  ASSERT_EQ(devices.size(), 3u);
  // The one that is gone first.
  EXPECT_NE(devices[0].at("why").get<std::string>().find("gone"), std::string::npos);
  EXPECT_EQ(devices[0].at("computed"), 4);  // from 1 ms on, half a millisecond each
  for (const auto& device : devices) {
    EXPECT_EQ(device.at("computations"), 2 * (4 * 3 + 1)) << device;
    EXPECT_FALSE(device.at("why").get<std::string>().empty());
  }
  // A job beside it that needs nothing of the device is none the worse for it.
  const CommandResult beside =
      overtake("simulate --synthetic stages=1 --beside '--synthetic stages=2,micro=2' --fail 2:1 --json");
  EXPECT_EQ(beside.exit_code, 2);
  EXPECT_NE(beside.err.find("is gone"), std::string::npos) << beside.err;
  // A short job beside a long one begins many steps; all of them count.
  const CommandResult many =
      overtake("simulate lenet --cluster p3.8xlarge --beside 'resnet-50 --batch 16' --fail 0:1 --json");
  EXPECT_EQ(many.exit_code, 2);
  const nlohmann::json said = many.json();
  EXPECT_GT(said.at("steps").get<int>(), 8);
  for (const auto& device : said.at("devices"))
    EXPECT_LT(device.at("computed").get<int>(), device.at("computations").get<int>());
  says("lenet --fail 0:-1", {"--fail 0:-1", "0 ms or more"});
}

}  // namespace
}  // namespace overtake::tests
