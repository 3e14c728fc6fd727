// The numbers that weights start with, and those that stand for them where steps are only timed.

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "exec/backend.h"
#include "plan/in_order.h"
#include "plan/memory.h"
#include "train/initial_values.h"

namespace overtake {
namespace {

std::unique_ptr<Executor> executor_with(const Init& init, std::int64_t rows, std::int64_t columns) {
  Graph g;
  g.parameters.push_back({.buffer = g.add_buffer("weight", {rows, columns}, DType::f32, Role::weight), .init = init});
  return make_cpu_executor({place_memory(schedule_in_order(g))}, {.threads = 1});
}

std::vector<float> weight_of(Executor& executor) {
  std::vector<float> values(static_cast<std::size_t>(executor.plan(0).graph.buffers[0].shape.elements()));
  executor.read_plain(0, std::as_writable_bytes(std::span(values)));
  return values;
}

double deviation_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Several threads make the numbers of large weights.
TEST(InitialValues, DoNotDependOnHowManyThereAre) {
  for (const Init& init : {Init{Init::Kind::normal, 0.02}, Init{Init::Kind::uniform, 0.5}}) {
    const auto small = executor_with(init, 10, 1000), large = executor_with(init, 701, 1000);
    for (Executor* executor : {small.get(), large.get()}) fill_initial_parameters(*executor, 7);
    const std::vector<float> few = weight_of(*small), many = weight_of(*large);
    EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
    const double deviation = init.kind == Init::Kind::normal ? 0.02 : 0.5 / std::sqrt(3.0);
    EXPECT_NEAR(deviation_of(many), deviation, 0.01 * deviation);
    EXPECT_GT(std::set<float>(many.end() - 10'000, many.end()).size(), 9'000u);  // the last ones are no zeros either
  }
}

TEST(InitialValues, ThoseForTimingAreAsLarge) {
  for (const Init& init : {Init{Init::Kind::normal, 0.02}, Init{Init::Kind::uniform, 0.5}, Init{Init::Kind::ones, 0}}) {
    const auto like = executor_with(init, 512, 512), timed = executor_with(init, 512, 512);
    fill_initial_parameters(*like, 7);
    fill_to_be_timed(*timed);
    const std::vector<float> values = weight_of(*timed);
    const double deviation = deviation_of(weight_of(*like));
    EXPECT_NEAR(deviation_of(values), deviation, 0.02 * deviation);
    if (init.kind == Init::Kind::ones) continue;
    std::set<std::vector<float>> rows;
    for (auto row = values.begin(); row != values.end(); row += 512) rows.emplace(row, row + 512);
    EXPECT_EQ(rows.size(), 512u);
  }
}

}  // namespace
}  // namespace overtake
