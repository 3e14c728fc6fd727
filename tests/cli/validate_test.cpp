// The table of published figures: how errors are counted, and what the command prints.

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "command.h"
#include "report/comparison.h"

namespace overtake::tests {
namespace {

TEST(Comparison, ErrorsOfValuesAndRanges) {
  const auto row = [](double low, double high, double ours) {
    return Comparison{.source = "s", .what = "w", .unit = "x", .low = low, .high = high, .ours = ours, .note = ""};
  };
  EXPECT_DOUBLE_EQ(row(2, 2, 2.5).error(), 25);
  EXPECT_DOUBLE_EQ(row(2, 2, 1.5).error(), -25);
  EXPECT_DOUBLE_EQ(row(2, 2, 2).error(), 0);
  EXPECT_FALSE(row(2, 2, 2).is_range());
  // Of a range, from its nearer end.
  EXPECT_DOUBLE_EQ(row(1, 2, 1.5).error(), 0);
  EXPECT_TRUE(row(1, 2, 2).is_inside());
  EXPECT_DOUBLE_EQ(row(1, 2, 3).error(), 50);
  EXPECT_DOUBLE_EQ(row(1, 2, 0.5).error(), -50);
  EXPECT_FALSE(row(1, 2, 0.5).is_inside());
}

TEST(Comparison, MeanAndLargestPerSource) {
  const std::vector<Comparison> rows = {{"a", "one", "x", 2, 2, 2.5, ""},
                                        {"b", "range", "x", 1, 2, 1.5, ""},
                                        {"a", "two", "x", 2, 2, 1.8, "too short"},
                                        {"b", "outside", "x", 1, 2, 4, "too short"}};
  const std::vector<SourceErrors> all = errors_by_source(rows);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].source, "a");
  EXPECT_EQ(all[0].rows, 2u);
  EXPECT_NEAR(all[0].mean, (25 + 10) / 2.0, 1e-9);
  EXPECT_NEAR(all[0].largest, 25, 1e-9);
  EXPECT_EQ(all[0].ranges, 0u);
  EXPECT_EQ(all[1].ranges, 2u);
  EXPECT_EQ(all[1].inside, 1u);
  EXPECT_NEAR(all[1].mean, 50, 1e-9);
  const std::string text = comparison_table(rows);
  for (const char* part : {"+25.0 %", "inside", "outside, +100.0 %", "[1] too short", "1.00 to 2.00",
                           "a: 2 rows, error 17.5 % on average, 25.0 % at most\n",
                           "b: 2 rows, error 50.0 % on average, 100.0 % at most, 1 of 2 ranges met"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(text.find("[2]"), std::string::npos) << "a reason is told once";
}

TEST(Validate, EveryRowHasASourceAndAnError) {
  const CommandResult r = overtake("validate --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const nlohmann::json j = r.json();
  EXPECT_EQ(j["rows"].size(), 235u);
  std::set<std::string> sources, rows;
  for (const auto& s : j["sources"]) {
    EXPECT_FALSE(s["citation"].get<std::string>().empty());
    sources.insert(s["source"]);
  }
  EXPECT_EQ(sources.size(), 14u);
  for (const auto& row : j["rows"]) {
    const std::string what = row["what"];
    EXPECT_TRUE(sources.contains(row["source"])) << what;
    EXPECT_TRUE(rows.insert(row["source"].get<std::string>() + what).second) << what << " comes twice";
    const double ours = row["ours"], low = row["published"][0], high = row["published"][1],
                 error = row["error_percent"];
    EXPECT_GT(ours, 0) << what;
    EXPECT_LE(low, high) << what;
    EXPECT_NEAR(ours,
                ours < low    ? low * (1 + error / 100)
                : ours > high ? high * (1 + error / 100)
                              : ours,
                1e-9)
        << what;
    EXPECT_EQ(row["inside"].get<bool>(), error == 0) << what;
    EXPECT_TRUE(std::abs(error) < 5 || !row["note"].get<std::string>().empty()) << what << " is " << error << " % off";
  }
}

// With the profiled times of the paper, its bubbles come out.
TEST(Validate, BubblesOfZeroBubble) {
  const CommandResult r = overtake("validate --only \"tables 5 and 6\" --json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const nlohmann::json said = r.json();
  EXPECT_EQ(said["rows"].size(), 48u);
  for (const auto& row : said["rows"]) EXPECT_LT(std::abs(row["error_percent"].get<double>()), 0.5) << row["what"];
}

TEST(Validate, OnlySomeRows) {
  const CommandResult r = overtake("validate --only nvls");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.out.find("NVLS: 1 row, error"), std::string::npos) << r.out;
  const CommandResult bad = overtake("validate --only nothing-has-this");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.err.find("--only nothing-has-this"), std::string::npos) << bad.err;
}

}  // namespace
}  // namespace overtake::tests
