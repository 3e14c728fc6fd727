// overtake report: the page and the figures of traces that other commands wrote.

#include <gtest/gtest.h>

#include "command.h"

namespace overtake::tests {
namespace {

TEST(Report, ShowsTheSchedulesOfABench) {
  const ScratchFolder folder;
  const std::string trace = folder / "lenet.json", page = folder / "lenet.html";
  const CommandResult bench = overtake("bench lenet --batch 8 --steps 1 --json --trace " + trace);
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  const CommandResult r = overtake("report " + trace + " -o " + page + " --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto runs = r.json().at("runs");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].at("run"), "in-order");
  EXPECT_EQ(runs[1].at("run"), "ooo");
  EXPECT_EQ(runs[0].at("tasks"), runs[1].at("tasks"));
  for (std::size_t i = 0; i < 2; ++i) {
    const auto device = runs[i].at("devices")[0];
    EXPECT_EQ(device.at("device"), "cpu");
    EXPECT_NEAR(device.at("busy_ms").get<double>() + device.at("idle_ms").get<double>(),
                runs[i].at("run_ms").get<double>(), 1e-6);
    // No more than the plan set aside for it.
    EXPECT_GT(device.at("peak_bytes").get<std::int64_t>(), 0);
    EXPECT_LE(device.at("peak_bytes").get<std::int64_t>(),
              bench.json().at("rows")[i].at("peak_bytes").get<std::int64_t>());
  }
  EXPECT_EQ(runs[0].at("devices")[0].at("overlap_ms"), 0.0);  // one lane
  // The same step times as the table of bench.
  const auto rows = bench.json().at("rows");
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(runs[i].at("step_ms").get<double>(), rows[i].at("step_ms").get<double>(), 1e-5);
  EXPECT_NEAR(runs[1].at("speed_up").get<double>(),
              rows[0].at("step_ms").get<double>() / rows[1].at("step_ms").get<double>(), 1e-4);
  EXPECT_TRUE(runs[1].at("step_time").get<std::string>().starts_with("median of ")) << runs[1];
  const std::string html = read_text(page);
  EXPECT_EQ(r.json().at("page").at("bytes").get<std::size_t>(), html.size());
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
}

TEST(Report, PutsFilesSideBySide) {
  const ScratchFolder folder;
  const std::string first = folder / "first.json", second = folder / "second.json";
  write_text(first, R"([{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 10, "dur": 30}])");
  write_text(second, R"([{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 10, "dur": 20}])");
  const CommandResult r = overtake("report " + first + " " + second + " --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto runs = r.json().at("runs");
  EXPECT_EQ(runs[0].at("run"), "first");
  EXPECT_EQ(runs[1].at("run"), "second");
  EXPECT_DOUBLE_EQ(runs[1].at("speed_up").get<double>(), 1.5);

  const CommandResult text = overtake("report " + first + " " + second + " -o " + (folder / "both.html"));
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find("second  process 1    0.020     1.500"), std::string::npos) << text.out;
}

// As ui.perfetto.dev wants them: tasks of a thread one after the other, and an arrow from each send to its recv.
TEST(Report, SimulatedTracesKeepTheRulesOfViewers) {
  const ScratchFolder folder;
  const std::string trace = folder / "t.json";
  const CommandResult run = overtake(
      "simulate resnet-18 --machine p3.8xlarge --dp 2 --pp 2 --micro-batches 4 --pipeline 1f1b --json --trace " +
      trace);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::map<std::pair<int, int>, double> end_of;
  std::map<std::string, int> begins, ends;
  const nlohmann::json file = nlohmann::json::parse(read_text(trace));
  for (const auto& e : file.at("traceEvents")) {
    if (e.at("ph") == "s") ++begins[e.at("id")];
    if (e.at("ph") == "f") ++ends[e.at("id")];
    if (e.at("ph") != "X") continue;
    double& end = end_of[{e.at("pid"), e.at("tid")}];
    EXPECT_GE(e.at("ts").get<double>(), end - 1e-6) << e;
    end = e.at("ts").get<double>() + e.at("dur").get<double>();
  }
  EXPECT_FALSE(begins.empty());
  EXPECT_EQ(begins, ends);
  const CommandResult report = overtake("report " + trace + " --json");
  EXPECT_NEAR(report.json().at("runs")[0].at("step_ms").get<double>(), run.json().at("step_ms").get<double>(), 1e-5);
  EXPECT_EQ(report.json().at("runs")[0].at("step_time"), "simulated");
}

TEST(Report, UserErrors) {
  const ScratchFolder folder;
  const std::string trace = folder / "t.json";
  write_text(trace, R"([{"ph": "X", "name": "a", "ts": 1, "dur": -1}])");
  const CommandResult nothing = overtake("report " + trace);
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_NE(nothing.err.find("-o report.html"), std::string::npos) << nothing.err;
  const CommandResult negative = overtake("report " + trace + " --json");
  EXPECT_EQ(negative.exit_code, 2);
  EXPECT_NE(negative.err.find("t.json: event 0 ('a'): a negative duration: -1 us"), std::string::npos) << negative.err;
  EXPECT_EQ(overtake("report").exit_code, 2);
  EXPECT_EQ(overtake("report no/such.json --json").exit_code, 2);
}

}  // namespace
}  // namespace overtake::tests
