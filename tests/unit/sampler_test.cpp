#include "train/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "temporary_folder.h"

namespace overtake {
namespace {

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<std::int64_t> counted(std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), std::int64_t{0});
  return values;
}

TEST(Sampler, OrderIsAPermutationOfItsOwnPerSeedAndEpoch) {
  for (const std::int64_t samples : {1, 2, 3, 17, 1000}) {
    EXPECT_EQ(sorted(shuffled_order(samples, 7, 3)), counted(samples));
  }
  EXPECT_EQ(shuffled_order(1000, 7, 3), shuffled_order(1000, 7, 3));
  EXPECT_NE(shuffled_order(1000, 7, 3), shuffled_order(1000, 7, 4));
  EXPECT_NE(shuffled_order(1000, 7, 3), shuffled_order(1000, 8, 3));
  EXPECT_NE(shuffled_order(1000, 7, 3), shuffled_order(1000, 7 + (1ull << 32), 3));
}

// All 24 orders of four come equally often: chi-squared with 23 degrees of freedom is below 49.7 in 99.9 % of cases.
TEST(Sampler, EveryOrderIsEquallyLikely) {
  std::array<int, 256> seen{};
  constexpr int epochs = 24000;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    std::size_t code = 0;
    for (const std::int64_t index : shuffled_order(4, 1, epoch)) code = code * 4 + static_cast<std::size_t>(index);
    ++seen[code];
  }
  double chi_squared = 0;
  int orders = 0;
  for (const int count : seen) {
    if (count == 0) continue;
    ++orders;
    chi_squared += std::pow(count - epochs / 24.0, 2) / (epochs / 24.0);
  }
  EXPECT_EQ(orders, 24);
  EXPECT_LT(chi_squared, 49.7);
}

// The order is part of what makes a run repeatable: a change of it would break resuming.
TEST(Sampler, OrderIsTheOneOfFisherAndYates) {
  auto reference = counted(10);
  for (std::uint64_t left = 10; left > 1; --left) {
    const auto words = philox({42, 0}, left, 5);
    const std::uint64_t draw = words[0] + (static_cast<std::uint64_t>(words[1]) << 32);
    std::swap(reference[left - 1], reference[draw % left]);
  }
  EXPECT_EQ(shuffled_order(10, 42, 5), reference);
}

TEST(Sampler, TrainingDropsTheRest) {
  Sampler sampler(10, {.batch = 3, .seed = 1});
  ASSERT_EQ(sampler.batches_per_epoch(), 3u);
  std::vector<std::int64_t> seen;
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    const auto indices = sampler.batch_at({2, batch});
    EXPECT_EQ(indices.size(), 3u);
    seen.insert(seen.end(), indices.begin(), indices.end());
  }
  auto expected = shuffled_order(10, 1, 2);
  expected.pop_back();
  EXPECT_EQ(seen, expected);
}

TEST(Sampler, EvaluationKeepsTheRestInOrder) {
  Sampler sampler(10, {.batch = 4, .shuffle = false, .drop_last = false});
  ASSERT_EQ(sampler.batches_per_epoch(), 3u);
  EXPECT_EQ(sampler.batch_at({0, 0}), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(sampler.batch_at({0, 2}), (std::vector<std::int64_t>{8, 9}));
}

TEST(Sampler, AnyPositionCanBeRestored) {
  Sampler walking(100, {.batch = 7, .seed = 9});
  DataPosition position;
  for (std::uint64_t step = 0; step < 60; ++step, position = walking.after(position)) {
    Sampler jumped(100, {.batch = 7, .seed = 9});
    ASSERT_EQ(jumped.at_step(step), position);
    ASSERT_EQ(jumped.batch_at(position), walking.batch_at(position));
  }
  EXPECT_EQ(position, (DataPosition{4, 4}));
}

TEST(Sampler, TooFewSamplesAreUserErrors) {
  EXPECT_TRUE(says(user_error([] { Sampler(5, {.batch = 8}); }),
                   {"`batch 8`: the data has 5 samples, fewer than one batch", "at most 5"}));
  EXPECT_TRUE(says(user_error([] { Sampler(5, {.batch = 0}); }), {"`batch 0`: not a batch size"}));
  EXPECT_TRUE(says(user_error([] { Sampler(0, {.batch = 1, .drop_last = false}); }), {"no samples"}));
}

}  // namespace
}  // namespace overtake
