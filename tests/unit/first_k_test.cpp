#include "plan/divide/first_k.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace overtake::tests {
namespace {

TEST(FirstK, IsWrittenAsItIsRead) {
  EXPECT_EQ(first_k_from_string("12"), (FirstK{12, 0}));
  EXPECT_EQ(first_k_from_string("12@30"), (FirstK{12, 30}));
  for (const FirstK f : {FirstK{}, FirstK{7}, FirstK{3, 41}}) EXPECT_EQ(first_k_from_string(to_string(f)), f);
  for (const char* bad : {"", "x", "-1", "3@", "@3", "3@-1", "3.5", "3@4@5", "99999999999"})
    EXPECT_THROW(first_k_from_string(bad), UserError) << bad;
}

// On a hill wherever its top is, no more than a small part of what could be tried is needed.
TEST(FirstK, SearchFindsTheTopOfAHill) {
  constexpr std::uint32_t kMost = 90;
  for (const FirstK top : {FirstK{0, 0}, FirstK{1, 0}, FirstK{90, 0}, FirstK{37, 0}, FirstK{20, 50}, FirstK{30, 60}}) {
    int tries = 0;
    double best = 1e9;
    FirstK found, first{1, 1};
    search_first_k(kMost, [&](FirstK f) {
      if (tries++ == 0) first = f;
      EXPECT_LE(f.k + f.from, kMost);
      const auto apart = [](std::uint32_t a, std::uint32_t b) { return std::abs(double{1} * a - double{1} * b); };
      const double height = apart(f.from, top.from) + apart(f.from + f.k, top.from + top.k);
      if (height >= best) return false;
      best = height;
      found = f;
      return true;
    });
    EXPECT_EQ(found, top) << to_string(found) << " instead of " << to_string(top);
    EXPECT_EQ(first, FirstK{});
    EXPECT_LT(tries, 110);
  }
}

}  // namespace
}  // namespace overtake::tests
