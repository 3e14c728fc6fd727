#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "temporary_folder.h"
#include "train/learning_rate.h"

namespace overtake {
namespace {

TEST(LearningRate, ConstantStays) {
  const auto schedule = parse_schedule("constant", 0.1, 0, 100);
  for (const std::uint64_t step : {0u, 1u, 99u, 1000000u}) EXPECT_EQ(schedule.at(step), 0.1f);
}

TEST(LearningRate, WarmupGrowsLinearlyToTheBase) {
  for (const char* spec : {"constant", "cosine", "step:1000:0.1"}) {
    const auto schedule = parse_schedule(spec, 0.8, 4, 100);
    EXPECT_FLOAT_EQ(schedule.at(0), 0.2f) << spec;
    EXPECT_FLOAT_EQ(schedule.at(1), 0.4f) << spec;
    EXPECT_FLOAT_EQ(schedule.at(3), 0.8f) << spec;
    EXPECT_FLOAT_EQ(schedule.at(4), 0.8f) << spec;
  }
}

TEST(LearningRate, StepMultipliesEverySoManySteps) {
  const auto schedule = parse_schedule("step:30:0.1", 2.0, 0, 100);
  EXPECT_FLOAT_EQ(schedule.at(29), 2.0f);
  EXPECT_FLOAT_EQ(schedule.at(30), 0.2f);
  EXPECT_FLOAT_EQ(schedule.at(59), 0.2f);
  EXPECT_FLOAT_EQ(schedule.at(60), 0.02f);
  EXPECT_FLOAT_EQ(schedule.at(90), 0.002f);
}

TEST(LearningRate, CosineFallsFromTheWarmupsEndToTheTotal) {
  const auto schedule = parse_schedule("cosine", 1.0, 10, 110);
  EXPECT_FLOAT_EQ(schedule.at(10), 1.0f);
  EXPECT_FLOAT_EQ(schedule.at(60), 0.5f);
  for (std::uint64_t step = 10; step < 110; ++step) {
    const double reference = (1 + std::cos(std::numbers::pi * static_cast<double>(step - 10) / 100)) / 2;
    EXPECT_NEAR(schedule.at(step), reference, 1e-7) << step;
  }
  EXPECT_EQ(schedule.at(110), 0.0f);
  EXPECT_EQ(schedule.at(5000), 0.0f);
}

TEST(LearningRate, CosineMayEndAboveZero) {
  const auto schedule = parse_schedule("cosine:0.1", 2.0, 0, 100);
  EXPECT_FLOAT_EQ(schedule.at(0), 2.0f);
  EXPECT_FLOAT_EQ(schedule.at(50), 1.1f);
  EXPECT_FLOAT_EQ(schedule.at(100), 0.2f);
}

TEST(LearningRate, BadSpecsAreUserErrors) {
  const auto error = [](const char* spec, double base = 0.1, std::uint64_t warmup = 0) {
    return user_error([&] { parse_schedule(spec, base, warmup, 100); });
  };
  EXPECT_TRUE(says(error("linear"), {"`lr_schedule linear`: no such schedule", "write constant"}));
  EXPECT_TRUE(says(error(""), {"no such schedule"}));
  EXPECT_TRUE(says(error("constant:1"), {"no such schedule"}));
  EXPECT_TRUE(says(error("step"), {"step takes two numbers"}));
  EXPECT_TRUE(says(error("step:30"), {"step takes two numbers"}));
  EXPECT_TRUE(says(error("step:x:0.1"), {"\"x\" is not a number"}));
  EXPECT_TRUE(says(error("step:0:0.1"), {"EVERY is 0"}));
  EXPECT_TRUE(says(error("step:30:2"), {"GAMMA is 2"}));
  EXPECT_TRUE(says(error("step:30:nan"), {"GAMMA is nan"}));
  EXPECT_TRUE(says(error("cosine:2"), {"END_FRACTION is 2"}));
  EXPECT_TRUE(says(error("cosine:0.1:3"), {"too many numbers"}));
  EXPECT_TRUE(says(error("constant", -1), {"`lr -1`: not a learning rate"}));
  EXPECT_TRUE(says(error("constant", NAN), {"`lr nan`: not a learning rate"}));
  EXPECT_TRUE(says(error("cosine", 0.1, 100), {"`warmup 100`: the whole run has 100 steps"}));
}

}  // namespace
}  // namespace overtake
