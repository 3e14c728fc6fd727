#include "comm/gloo/pace.h"

#include <gtest/gtest.h>

namespace overtake {
namespace {

using Micros = std::chrono::microseconds;

// The window after so many chunks that came at such intervals.
int window_after(Pace& pace, int chunks, Micros gap, std::size_t bytes = 1000) {
  static auto now = std::chrono::steady_clock::now() + std::chrono::hours(1);
  pace.passed(0, now);
  for (int i = 0; i < chunks; ++i) pace.passed(bytes, now += gap);
  return pace.window();
}

TEST(Pace, FollowsTheLink) {
  Pace pace(4, 16, 0.008, 1000);
  EXPECT_EQ(pace.window(), 4);
  EXPECT_EQ(window_after(pace, 30, Micros(2000)), 4);
  EXPECT_EQ(window_after(pace, 30, Micros(1000)), 8);
  EXPECT_EQ(window_after(pace, 30, Micros(10)), 16);
  EXPECT_EQ(window_after(pace, 30, Micros(50'000)), 4);
  EXPECT_EQ(window_after(pace, 30, Micros(500), 500), 8);  // half a chunk
}

// What stands still for long is fast again after a few chunks, and small messages say nothing.
TEST(Pace, ForgetsSoon) {
  Pace pace(4, 16, 0.008, 1000);
  window_after(pace, 1, Micros(100'000'000));
  EXPECT_EQ(window_after(pace, 8, Micros(100)), 16);
  EXPECT_EQ(window_after(pace, 100, Micros(50'000), 100), 16);
}

TEST(Pace, StaysWithinItsLimits) {
  Pace one(2, 1, 0.008, 1000);
  EXPECT_EQ(one.window(), 1);
  EXPECT_EQ(window_after(one, 30, Micros(0)), 1);
}

}  // namespace
}  // namespace overtake
