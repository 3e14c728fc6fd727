#include "overtake/virtual_link.h"

#include <gtest/gtest.h>

namespace overtake {
namespace {

constexpr VirtualLink kLink = {.bytes_per_s = 25'000'000'000, .latency_ns = 5'000};

TEST(VirtualLink, AReceiptTakesItsLatencyAndItsBytes) {
  EXPECT_EQ(transfer_ns(kLink, Kind::recv, 0, 2), 5'000);
  EXPECT_EQ(transfer_ns(kLink, Kind::recv, 1'000'000, 2), 5'000 + 40'000);
}

// Four members: three steps of a quarter each, and three more where all shall have the sum.
TEST(VirtualLink, CollectivesAreRings) {
  EXPECT_EQ(transfer_ns(kLink, Kind::reduce_scatter, 1'000'000, 4), 3 * (5'000 + 10'000));
  EXPECT_EQ(transfer_ns(kLink, Kind::all_gather, 1'000'000, 4), 3 * (5'000 + 10'000));
  EXPECT_EQ(transfer_ns(kLink, Kind::all_reduce, 1'000'000, 4), 6 * (5'000 + 10'000));
  EXPECT_EQ(transfer_ns(kLink, Kind::all_reduce, 1'000'000, 1), 0);
}

TEST(VirtualLink, WithoutBandwidthOnlyLatencyCounts) {
  EXPECT_EQ(transfer_ns({.bytes_per_s = 0, .latency_ns = 7}, Kind::recv, 1 << 30, 2), 7);
  EXPECT_EQ(transfer_ns({}, Kind::all_reduce, 1 << 30, 8), 0);
  EXPECT_FALSE(VirtualLink{}.is_throttled());
  EXPECT_TRUE(kLink.is_throttled());
}

}  // namespace
}  // namespace overtake
