// overtake plan, and what takes its files: train --plan and simulate X.plan.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "simulated.h"

namespace overtake::tests {
namespace {

struct Layout {
  const char* flags;
  int devices;
};
constexpr Layout kLayouts[] = {{"", 1},
                               {"--micro-batches 4", 1},
                               {"--dp 2 --reduce auto", 2},
                               {"--pp 2 --micro-batches 4 --pipeline search --search-tries 500", 2},
                               {"--dp 2 --pp 2 --micro-batches 2 --pipeline zb-h1 --clip-norm 1", 4}};

const std::string kMachine = "--machine cpu-hosts:4 --parts 2 --batch 8 ";
const std::string kRun = " --data synthetic:16 --steps 2 --json";

std::string on(int processes, const std::string& train) {
  return processes == 1 ? train : fmt::format("launch -n {} -- {}", processes, train);
}

TEST(Plan, IsTheSameInEveryCommand) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.flags);
    const ScratchFolder folder;
    const std::string run = "cnn --set width=4 " + kMachine + layout.flags;
    const auto file = [&](const char* name) { return folder / name; };
    const CommandResult plan = overtake("plan " + run + " --json -o " + file("a.plan"));
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const CommandResult simulated = overtake("simulate " + run + " --save-plan " + file("b.plan"));
    ASSERT_EQ(simulated.exit_code, 0) << simulated.err;
    const CommandResult trained =
        overtake(on(layout.devices, "train " + run + kRun + " --no-trials --save-plan " + file("c.plan")));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const std::string text = read_text(file("a.plan"));
    EXPECT_EQ(read_text(file("b.plan")), text);
    EXPECT_EQ(read_text(file("c.plan")), text);
    // And again, from the plan.
    const CommandResult again = overtake(on(layout.devices, "train --plan " + file("a.plan") + kRun));
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(again.json().at("weights_hash"), trained.json().at("weights_hash"));
    EXPECT_EQ(again.json().at("schedule"), trained.json().at("schedule"));
    EXPECT_EQ(step_ms(file("a.plan")), step_ms(run));
    const CommandResult measured = overtake("bench --plan " + file("a.plan") + " --steps 2 --json");
    ASSERT_EQ(measured.exit_code, 0) << measured.err;
    ASSERT_EQ(measured.json().at("rows").size(), 1u);
    EXPECT_EQ(measured.json().at("rows")[0].at("schedule"), plan.json().at("chosen"));
  }
}

TEST(Plan, OfThisMachineIsMeasuredAndRuns) {
  const ScratchFolder folder;
  const std::string file = folder / "here.plan";
  const CommandResult plan = overtake("plan lenet --batch 8 --parts 2 --plan-seconds 0.2 --json -o " + file);
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(plan.json().at("machine"), "this machine");
  EXPECT_GE(plan.json().at("choices").size(), 1u);
  const CommandResult planned = overtake("train --plan " + file + kRun),
                      usual = overtake("train lenet --batch 8 --parts 2 --schedule in-order" + kRun);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(planned.json().at("weights_hash"), usual.json().at("weights_hash"));
}

TEST(Plan, FilesAreShownAndCompared) {
  const ScratchFolder folder;
  const std::string one = folder / "one.plan", other = folder / "other.plan";
  const std::string pipeline = "plan cnn --set width=4 " + kMachine + "--pp 2 --micro-batches 4 --pipeline ";
  ASSERT_EQ(overtake(pipeline + "1f1b -o " + one).exit_code, 0);
  ASSERT_EQ(overtake(pipeline + "gpipe -o " + other).exit_code, 0);
  const CommandResult shown = overtake("plan " + one), json = overtake("plan " + one + " --json");
  EXPECT_NE(shown.out.find("1f1b"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("memory"), std::string::npos) << shown.out;
  EXPECT_EQ(json.json().at("peak_bytes_by_device").size(), 2u);
  const CommandResult differ = overtake("plan " + one + " --compare " + other);
  EXPECT_EQ(differ.exit_code, 0) << differ.err;
  EXPECT_NE(differ.out.find("pipeline: \"1f1b\" | \"gpipe\""), std::string::npos) << differ.out;
  EXPECT_EQ(overtake("plan " + one + " --compare " + one).out, "the two are equal\n");
  ASSERT_EQ(overtake(pipeline + "1f1b --chunk 1M --overwrite -o " + other).exit_code, 0);
  EXPECT_NE(overtake("plan " + one + " --compare " + other).out, "the two are equal\n");
  // A file for runs says what a bench has no flag for.
  write_text(folder / "run.toml", "schedule = \"auto\"\npp = 2\ndata = \"synthetic\"\n");
  const CommandResult bench =
      overtake("bench --spec " + (folder / "run.toml") + " --plan " + one + " --steps 1 --json");
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
}

// Each process measures its part; one of them writes the file.
TEST(Plan, OfSeveralProcessesIsOnePlan) {
  const ScratchFolder folder;
  const std::string file = folder / "two.plan";
  const CommandResult plan =
      overtake("launch -n 2 -- plan cnn --set width=4 --batch 8 --parts 2 --pp 2 --micro-batches 4 --json -o " + file);
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(plan.json().at("machine"), "ranks");
  const CommandResult trained = overtake("launch -n 2 -- train --plan " + file + kRun),
                      usual = overtake(
                          "train cnn --set width=4 --batch 8 --parts 2 --micro-batches 4 --schedule "
                          "in-order" +
                          kRun);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.json().at("weights_hash"), usual.json().at("weights_hash"));
}

// Plans of one device say which task runs when.
TEST(Plan, AnOrderThatCannotRunIsRefused) {
  const ScratchFolder folder;
  const std::string file = folder / "one.plan", damaged = folder / "damaged.plan";
  ASSERT_EQ(overtake("plan lenet --machine h200 --batch 8 --schedule ooo -o " + file).exit_code, 0);
  const nlohmann::json good = nlohmann::json::parse(read_text(file));
  const auto refused = [&](const std::function<void(nlohmann::json & order)>& damage) {
    nlohmann::json plan = good;
    damage(plan["choices"][plan["chosen"].get<std::size_t>()]["order"]);
    write_text(damaged, plan.dump());
    for (const std::string command : {"plan ", "simulate "}) {
      const CommandResult r = overtake(command + damaged);
      EXPECT_EQ(r.exit_code, 2) << command << r.err;
      EXPECT_NE(r.err.find("does not hold together"), std::string::npos) << r.err;
    }
  };
  refused([](nlohmann::json& order) { std::ranges::reverse(order["lanes"][0]["tasks"]); });
  refused([](nlohmann::json& order) { order["lanes"][0]["device"] = 7; });
  refused([](nlohmann::json& order) { order["lanes"][0]["tasks"].push_back(99999); });
}

// What happens on a machine beyond what its plans are made for is added to what they say of it.
TEST(Plan, KeepsItsMachineInSimulations) {
  const ScratchFolder folder;
  const std::string file = folder / "two.plan", changed = folder / "changed.plan";
  ASSERT_EQ(overtake("plan cnn --set width=4 " + kMachine + "--pp 2 --micro-batches 4 -o " + file).exit_code, 0);
  nlohmann::json plan = nlohmann::json::parse(read_text(file));
  plan["machine"]["options"]["overlap_slows"] = false;
  plan["machine"]["options"]["speeds"] = {0.5, 1, 1, 1};
  write_text(changed, plan.dump());
  EXPECT_EQ(step_ms(changed), step_ms(changed + " --no-slowdown"));
  EXPECT_GE(step_ms(changed + " --slow 1:0.9"), step_ms(changed)) << "a straggler makes nothing faster";
  EXPECT_GT(step_ms(changed), step_ms(file));
  // What cannot be of any machine.
  const auto refused = [&](const std::function<void(nlohmann::json & plan)>& damage) {
    nlohmann::json damaged = plan;
    damage(damaged);
    write_text(changed, damaged.dump());
    const CommandResult r = overtake("simulate " + changed);
    EXPECT_EQ(r.exit_code, 2) << r.err;
    EXPECT_EQ(r.err.find("report"), std::string::npos) << "it is no fault of the program's: " << r.err;
  };
  refused([](nlohmann::json& p) { p["machine"]["options"]["speeds"] = {1, 1}; });
  refused([](nlohmann::json& p) { p["machine"]["memory"] = {1}; });
  refused([](nlohmann::json& p) { p["machine"]["cluster"]["nodes"][0]["count"] = 0; });
  refused([](nlohmann::json& p) { p["machine"]["cluster"]["links"][0]["from"]["node"] = "nosuch"; });
  refused([](nlohmann::json& p) { p["devices"] = {0, 0}; });
}

TEST(Plan, WhatCannotBeIsRefused) {
  const ScratchFolder folder;
  const std::string gpu = folder / "gpu.plan", two = folder / "two.plan";
  ASSERT_EQ(overtake("plan cnn --machine h200 --batch 8 -o " + gpu).exit_code, 0);
  ASSERT_EQ(overtake("plan cnn " + kMachine + "--dp 2 -o " + two).exit_code, 0);
  write_text(folder / "damaged.plan", read_text(two).substr(0, 1000));
  const auto says = [](const std::string& arguments, const std::vector<std::string>& words) {
    const CommandResult r = overtake(arguments);
    EXPECT_EQ(r.exit_code, 2) << arguments;
    for (const std::string& word : words) EXPECT_NE(r.err.find(word), std::string::npos) << arguments << ": " << r.err;
  };
  says("plan cnn", {"--out"});
  says("plan " + two + " --dp 4", {"--dp", "two.plan"});
  says("plan " + two + " -o " + (folder / "x.plan"), {"--out", "two.plan"});
  says("plan cnn --compare " + two + " -o " + (folder / "x.plan"), {"--compare"});
  says("plan nosuch -o " + (folder / "x.plan"), {"nosuch"});
  says("plan cnn --batch 8 -o " + (folder / "two.plan/x.plan"), {"two.plan"});
  says("plan cnn --machine dgx-h100 --dp 9 -o " + (folder / "x.plan"), {"9 devices", "has 8"});
  says("train --plan " + gpu + kRun, {"--plan", "GPUs", "CPUs", "--device"});
  says("train --plan " + two + " --dp 4" + kRun, {"--dp", "4", "2", "two.plan"});
  says("train lenet --plan " + two + kRun, {"MODEL", "lenet", "cnn"});
  says("train --plan " + (folder / "damaged.plan") + kRun, {"damaged", "overtake plan"});
  says("train --plan " + (folder / "none.plan") + kRun, {"none.plan"});
  says("launch -n 4 -- train --plan " + two + kRun, {"2 processes", "job has 4"});
  says("simulate " + two + " --compare all", {"--compare"});
  says("simulate " + two + " --sweep dp=1,2", {"--sweep", "two.plan"});
  says("simulate " + two + " --save-profile x.json", {"--save-profile", "two.plan"});
  says("simulate " + gpu + " --slow 0:bad", {"--slow"});
  says("plan " + two + " --save-spec " + (folder / "x.toml"), {"--save-spec", "two.plan"});
  const std::string unmeasured = folder / "unmeasured.plan", saved = folder / "saved.toml";
  ASSERT_EQ(overtake("plan lenet --schedule in-order -o " + unmeasured).exit_code, 0);
  says("simulate " + unmeasured, {"nothing is known of what its tasks take"});
  says("simulate cnn --machine nope --save-spec " + saved, {"nope"});
  EXPECT_FALSE(std::filesystem::exists(saved)) << "it was written before all of it was checked";
  says("simulate " + two + " --dp 4", {"--dp", "4", "2", "two.plan"});
  says("simulate " + two + " --machine h200", {"--machine", "two.plan", "cpu-hosts"});
  says("simulate " + two + " --save-plan " + (folder / "x.plan"), {"--save-plan", "two.plan"});
  says("simulate cnn --dp 2 --compare all --save-plan " + (folder / "x.plan"), {"--save-plan", "--compare"});
  says("simulate cnn --sweep dp=1,2 --save-plan " + (folder / "x.plan"), {"--save-plan", "--sweep"});
  says("train --plan " + two + " --machine h200" + kRun, {"--machine", "two.plan"});
  says("bench --plan " + two + " --schedules ooo", {"--plan", "--schedules"});
  says("bench --plan " + two + " --explain", {"--plan", "--explain"});
  says("train cnn --batch 8 --machine h200" + kRun, {"--machine h200", "GPUs", "CPUs"});
}

}  // namespace
}  // namespace overtake::tests
