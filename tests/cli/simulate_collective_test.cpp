// overtake simulate --collective: a collective alone, in nccl-tests' terms.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "simulated.h"

namespace overtake::tests {
namespace {

TEST(SimulateCollective, OneSizeInNcclTestsTerms) {
  const nlohmann::json j = simulated("--collective all-reduce --bytes 256M --machine dgx-h100 --devices 0-3");
  const double ms = j["ms"], algbw = j["algbw_gbs"];
  EXPECT_NEAR(algbw, 256 * 1048576.0 / ms * 1e-6, 1e-6 * algbw);
  EXPECT_NEAR(j["busbw_gbs"].get<double>(), algbw * 1.5, 1e-6 * algbw);
  EXPECT_EQ(j["algorithm"], "ring");
  EXPECT_EQ(j["protocol"], "Simple");
  EXPECT_EQ(j["machine"], "dgx-h100");
  EXPECT_EQ(j["devices"].size(), 4u);
  ASSERT_EQ(j["sizes"].size(), 1u);
  EXPECT_EQ(j["sizes"][0]["ms"], j["ms"]);
  // Chunks cost nothing: 0 is without.
  const nlohmann::json whole =
      simulated("--collective all-reduce --bytes 256M --machine dgx-h100 --devices 0-3 --chunk 0");
  EXPECT_NEAR(whole["ms"].get<double>(), ms, 0.002 * ms);
}

TEST(SimulateCollective, SeveralSizesInOneTable) {
  const std::string command = "simulate --machine p3.8xlarge --collective ";
  const CommandResult table = overtake(command + "all-gather --bytes 1K:1M:32");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  for (const char* part :
       {"all-gather among 4 devices of p3.8xlarge", "algbw GB/s", "busbw GB/s", "1024", "32768", "1048576"})
    EXPECT_NE(table.out.find(part), std::string::npos) << part << " in\n" << table.out;
  const nlohmann::json list = overtake(command + "broadcast --bytes 8,1M --json").json();
  ASSERT_EQ(list["sizes"].size(), 2u);
  EXPECT_EQ(list["sizes"][1]["bytes"], 1 << 20);
  EXPECT_FALSE(list.contains("ms"));
  EXPECT_EQ(overtake(command + "send-recv --bytes 8:100:10 --json").json()["sizes"].size(), 2u);
}

TEST(SimulateCollective, EveryOperationAndAlgorithm) {
  const std::string command = "--bytes 64M --machine dgx-h100:2 --collective ";
  for (const char* operation : {"all-reduce", "reduce-scatter", "all-gather", "broadcast", "send-recv"})
    EXPECT_GT(simulated(command + operation)["busbw_gbs"].get<double>(), 1) << operation;
  for (const char* algorithm : {"ring", "tree", "halving-doubling", "hierarchical", "in-network", "nvls-tree"})
    EXPECT_EQ(simulated(command + "all-reduce --algorithm " + algorithm)["algorithm"], algorithm);
}

TEST(SimulateCollective, OneProcessForAllDevicesLaunchesInTurn) {
  const std::string command = "--collective all-reduce --bytes 8 --machine dgx-h100 --devices-per-process ";
  EXPECT_GT(simulated(command + "8")["ms"].get<double>(), simulated(command + "1")["ms"].get<double>());
}

}  // namespace
}  // namespace overtake::tests
