// bench, models, devices, and every command's help.

#include <gtest/gtest.h>

#include <sstream>

#include "command.h"

namespace overtake::tests {
namespace {

TEST(Bench, RowsHaveTheSameHash) {
  const CommandResult r = overtake("bench lenet --batch 16 --schedules in-order,ooo,auto --steps 3 --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto rows = r.json().at("rows");
  ASSERT_EQ(rows.size(), 3u);
  for (const auto& row : rows) {
    EXPECT_GT(row.at("step_ms").get<double>(), 0);
    EXPECT_GT(row.at("peak_bytes").get<std::int64_t>(), 0);
    EXPECT_EQ(row.at("weights_hash"), rows[0].at("weights_hash"));
  }
  EXPECT_EQ(rows[1].at("schedule"), "ooo");
}

// What each step brings, the plans that were tried, and what moved.
TEST(Bench, Explain) {
  const CommandResult r = overtake("bench cnn --batch 4 --explain --steps 2 --fresh-profile --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const nlohmann::json j = r.json();
  std::vector<std::string> names;
  for (const auto& row : j["rows"]) names.push_back(row["schedule"]);
  EXPECT_EQ(names, (std::vector<std::string>{"plain", "+ fusion", "+ out of order"}));
  EXPECT_EQ(j["rows"][1]["weights_hash"], j["rows"][2]["weights_hash"]);
  EXPECT_TRUE(j["reason"].get<std::string>().starts_with("schedule: "));
  int chosen = 0;
  const auto& candidates = j["rows"][2]["candidates"];
  if (candidates.size() == 1) return;  // one core: there is nothing to choose
  for (const auto& c : candidates) {
    EXPECT_GT(c["measured_ms"].get<double>(), 0);
    EXPECT_GT(c["predicted_ms"].get<double>(), 0);
    chosen += c["chosen"].get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_NE(overtake("bench cnn --batch 4 --explain --steps 1").out.find("predicted"), std::string::npos);
}

TEST(Bench, SaysWhatEachPassSaved) {
  const std::string run = "bench resnet-18 --set image=32,classes=10 --batch 2 --schedules in-order --steps 1 --passes";
  const CommandResult r = overtake(run + " --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  bool has_fuse = false;
  const auto passes = r.json().at("passes");
  for (const auto& pass : passes) {
    if (pass.at("pass") != "fuse") continue;
    has_fuse = true;
    EXPECT_GT(pass.at("bytes_saved").get<double>(), 1e5);
    EXPECT_GT(pass.at("bytes").get<double>(), pass.at("bytes_saved").get<double>());
  }
  EXPECT_TRUE(has_fuse);
  EXPECT_NE(overtake(run + " --skip-pass fuse").out.find("skipped"), std::string::npos);
}

TEST(Models, ListsPublishedParameterCounts) {
  const auto models = overtake("models --json").json().at("models");
  std::map<std::string, std::int64_t> parameters;
  for (const auto& m : models) parameters[m.at("name")] = m.at("parameters").get<std::int64_t>();
  EXPECT_EQ(parameters.at("resnet-18"), 11'689'512);
  EXPECT_EQ(parameters.at("resnet-50"), 25'557'032);
  EXPECT_EQ(parameters.at("lenet"), 61'706);
}

TEST(Models, FitAHundredColumns) {
  std::istringstream lines(overtake("models").out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(Devices, NamesTheCpu) {
  const auto devices = overtake("devices --json").json().at("devices");
  EXPECT_EQ(devices[0].at("name"), "cpu");
  EXPECT_GE(devices[0].at("cores").get<int>(), 1);
}

TEST(Help, EveryCommandHasAnExample) {
  for (const std::string command :
       {"train", "launch", "bench", "report", "plan", "simulate", "validate", "models", "export", "devices", "help"}) {
    const CommandResult r = overtake(command + " --help");
    EXPECT_EQ(r.exit_code, 0);
    EXPECT_NE(r.out.find("Example:\n  overtake " + command), std::string::npos) << r.out;
    const CommandResult asked = overtake("help " + command);
    EXPECT_EQ(asked.exit_code, 0);
    EXPECT_EQ(asked.out, r.out);
  }
  EXPECT_EQ(overtake("help").out, overtake("--help").out);
}

TEST(NullDevice, WalksAPlan) {
  EXPECT_EQ(overtake("bench lenet --device null --schedules in-order,ooo --steps 2").exit_code, 0);
}

}  // namespace
}  // namespace overtake::tests
