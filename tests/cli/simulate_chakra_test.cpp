// overtake simulate --chakra: traces of other programs, written as they write them.

#include <gtest/gtest.h>

#include "sim/chakra_case.h"
#include "simulated.h"

namespace overtake::tests {
namespace {

using namespace chakra_case;

// All ranks do the same.
std::string written(const ScratchFolder& folder, int ranks, const std::vector<NodeBytes>& nodes) {
  for (int rank = 0; rank < ranks; ++rank) write_text(folder / ("t." + std::to_string(rank) + ".et"), trace(nodes));
  return folder / "t";
}

TEST(SimulateChakra, AllToAll) {
  const ScratchFolder folder;
  const std::string prefix =
      written(folder, 4, {node(1, "COMM_COLL_NODE_ALLTOALL", kCollective).collective(6, 75'000'000)});
  const CommandResult r = overtake("simulate --machine h200:4 --json --chakra " + prefix);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  // Three quarters over 50 GB/s each way, of which 0.96 are payload, and once what it takes before the first byte.
  EXPECT_NEAR(r.json().at("step_ms").get<double>(), 1.125 / 0.96 + 0.02, 0.02);
  EXPECT_TRUE(r.json().at("notes").empty());
}

TEST(SimulateChakra, WithoutTimesIsRefused) {
  const ScratchFolder folder;
  const std::string prefix = written(folder, 1, {node(1, "gemm", kCompute), node(2, "relu", kCompute).on_data({1})});
  const CommandResult r = overtake("simulate --machine h200 --chakra " + prefix);
  EXPECT_EQ(r.exit_code, 2);
  for (const char* word : {"nothing in it takes time", "2 of 2 computations", "duration_micros", "num_ops"})
    EXPECT_NE(r.err.find(word), std::string::npos) << word << ": " << r.err;
}

TEST(SimulateChakra, SaysWhatHasNoTime) {
  const ScratchFolder folder;
  const std::string prefix =
      written(folder, 2, {node(1, "gemm", kCompute), node(2, "ar", kCollective).collective(0, 1000).on_data({1})});
  const CommandResult r = overtake("simulate --machine h200:2 --chakra " + prefix);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.err.find("2 of 2 computations have neither duration_micros"), std::string::npos) << r.err;
  const CommandResult json = overtake("simulate --machine h200:2 --json --chakra " + prefix);
  EXPECT_EQ(json.json().at("notes").size(), 1u);
}

}  // namespace
}  // namespace overtake::tests
