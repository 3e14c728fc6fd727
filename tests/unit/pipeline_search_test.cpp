// The search for pipeline schedules against the named ones and against the optimum of small pipelines.

#include <gtest/gtest.h>

#include <cstdio>

#include "pipeline_optimum.h"
#include "pipeline_problems.h"
#include "plan/pipeline/search.h"

namespace overtake {
namespace {

// p = 4..16, m = p..4p, stages of unequal cost, one, two or four per device, and 1, 1.5 or 2 times 1F1B's memory.
PipelineProblem unequal(int i, std::mt19937& random) {
  const std::uint32_t p = roll_count(random, 4, 16);
  PipelineProblem problem{.devices = p, .micro_batches = roll_count(random, p, 4 * p), .blocks = {}};
  problem.blocks.resize(std::size_t{p} << i % 3);
  for (BlockCosts& c : problem.blocks) {
    const std::int64_t ns = roll(random, 500, 1500);
    c = {ns + roll(random, 0, 300), ns + roll(random, 0, 300), ns - roll(random, 0, 400),
         roll(random, 50, 100),     roll(random, 20, 50),      0};
  }
  problem.memory_cap = peak_bytes(times_of("1f1b", problem)) * (2 + i / 3 % 3) / 2;
  return problem;
}

// The best named schedule that fits, over all options that differ.
std::int64_t best_named(const PipelineProblem& problem, bool may_repeat_weights) {
  std::int64_t best = INT64_MAX;
  for (const NamedSchedule& named : named_schedules()) {
    if (named.name == "dualpipe" && !may_repeat_weights) continue;
    for (const std::uint32_t option : {1u, 2u, 3u, 4u}) {
      try {
        const PipelineTimes times = times_of(named.name, problem, {.chunks = option, .group = option});
        if (peak_bytes(times) <= *problem.memory_cap) best = std::min(best, times.makespan_ns);
      } catch (const UserError&) {
        // Not for this pipeline.
      }
    }
  }
  return best;
}

void expect_better_than_named(bool may_repeat_weights, int at_least) {
  constexpr int kProblems = 200;
  std::mt19937 random(1);
  int faster = 0;
  double gain = 0;
  for (int i = 0; i < kProblems; ++i) {
    SCOPED_TRACE(i);
    const PipelineProblem problem = unequal(i, random);
    const std::int64_t named = best_named(problem, may_repeat_weights);
    const FoundSchedule found =
        search_schedule(problem, {.tries = 400, .seed = 1, .may_repeat_weights = may_repeat_weights});
    verify(problem, found.schedule);
    const std::int64_t ns = evaluate(problem, found.schedule).makespan_ns;
    EXPECT_EQ(found.times.makespan_ns, ns);
    EXPECT_LE(peak_bytes(found.times), *problem.memory_cap);
    EXPECT_LE(ns, named);
    EXPECT_LE(found.best_named_ns, named);
    faster += ns < named ? 1 : 0;
    gain += 1 - static_cast<double>(ns) / static_cast<double>(named);
  }
  EXPECT_GE(faster, at_least);
  std::printf("search, weights %s: faster than the best named schedule in %d of %d, by %.1f %% on average\n",
              may_repeat_weights ? "once or twice" : "once", faster, kProblems, 100 * gain / kProblems);
}

TEST(PipelineSearch, IsNeverSlowerThanNamedSchedules) { expect_better_than_named(true, 100); }
TEST(PipelineSearch, IsNeverSlowerThanNamedSchedulesWithWeightsOnce) { expect_better_than_named(false, 100); }

TEST(PipelineSearch, WithinThreePercentOfTheOptimum) {
  constexpr int kProblems = 300;
  std::mt19937 random(3);
  double worst = 1, sum = 0;
  int exact = 0;
  for (int i = 0; i < kProblems; ++i) {
    SCOPED_TRACE(i);
    PipelineProblem problem{
        .devices = roll_count(random, 2, 3), .micro_batches = roll_count(random, 1, 5), .blocks = {}};
    problem.blocks.resize(problem.devices == 2 ? roll_count(random, 2, 5) : roll_count(random, 3, 4));
    for (BlockCosts& c : problem.blocks)
      c = {roll(random, 1, 9), roll(random, 1, 9), roll(random, 1, 9), roll(random, 2, 5), roll(random, 1, 2), 0};
    if (i % 4 != 0) problem.memory_cap = peak_bytes(times_of("1f1b", problem)) * (i % 4 + 1) / 2;
    const FoundSchedule found = search_schedule(problem, {.tries = 20'000, .seed = 1, .may_repeat_weights = false});
    verify(problem, found.schedule);
    PipelineOptimum optimum(problem);
    const std::int64_t best = optimum.solve(found.times.makespan_ns);
    const double ratio = static_cast<double>(found.times.makespan_ns) / static_cast<double>(best);
    EXPECT_LE(ratio, 1.03) << found.times.makespan_ns << " against " << best;
    worst = std::max(worst, ratio);
    sum += ratio;
    exact += best == found.times.makespan_ns ? 1 : 0;
  }
  std::printf("search against the optimum of %d small pipelines: %d exact, %.2f %% over on average, %.2f %% at worst\n",
              kProblems, exact, 100 * (sum / kProblems - 1), 100 * (worst - 1));
}

TEST(PipelineSearch, KeepsTheCapWithRecomputation) {
  std::mt19937 random(6);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    PipelineProblem problem = unequal(i, random);
    for (BlockCosts& c : problem.blocks)
      if (random() % 2 == 0) {
        c.input_grad_ns += c.forward_ns;
        c.activation_bytes = std::min<std::int64_t>(10, c.activation_bytes);  // less than its gradients keep
      }
    const FoundSchedule found = search_schedule(problem, {.tries = 200, .seed = 1, .may_repeat_weights = true});
    verify(problem, found.schedule);
    EXPECT_LE(peak_bytes(found.times), *problem.memory_cap);
    EXPECT_LE(found.times.makespan_ns, best_named(problem, true));
  }
}

// The optimum itself: alike stages with enough memory take what Zero Bubble proves.
TEST(PipelineSearch, OptimumOfAlikeStages) {
  PipelineProblem problem = alike(2, 4, {1, 1, 1});
  PipelineOptimum optimum(problem);
  EXPECT_EQ(optimum.solve(1000), 4 * 3 + 1);
  problem = alike(3, 4, {2, 3, 1});
  problem.memory_cap = 3;
  const std::int64_t best = optimum.solve(times_of("zb-h1", problem).makespan_ns + 1);
  EXPECT_LE(best, 4 * 6 + 2 * (2 + 3 - 1));
  EXPECT_GE(best, 4 * 6 + 2 * 2);
}

TEST(PipelineSearch, IsTheSameEveryTime) {
  std::mt19937 random(2);
  for (int i = 0; i < 6; ++i) {
    const PipelineProblem problem = unequal(i, random);
    const FoundSchedule a = search_schedule(problem, {.tries = 500, .seed = 4});
    const FoundSchedule b = search_schedule(problem, {.tries = 500, .seed = 4});
    EXPECT_EQ(a.schedule.orders, b.schedule.orders);
    EXPECT_EQ(a.schedule.layout, b.schedule.layout);
    EXPECT_EQ(a.reason, b.reason);
    EXPECT_EQ(a.tries, b.tries);
  }
}

// Without any memory given, nothing is limited by it; one device and one micro-batch work too.
TEST(PipelineSearch, TakesThePlainest) {
  PipelineProblem problem{.devices = 1, .micro_batches = 1, .blocks = {{5, 6, 7, 0, 0, 0}}};
  EXPECT_EQ(search_schedule(problem, {.tries = 10}).times.makespan_ns, 18);
  problem = {.devices = 4, .micro_batches = 8, .blocks = {}};
  problem.blocks.assign(4, {1, 1, 1, 0, 0, 0});
  const FoundSchedule found = search_schedule(problem, {.tries = 5000});
  EXPECT_EQ(found.times.makespan_ns, 8 * 3 + 3);
  EXPECT_EQ(found.schedule.name, found.best_named);
  EXPECT_LE(search_schedule(problem, {.tries = 0}).times.makespan_ns, found.best_named_ns);
}

TEST(PipelineSearch, SaysHowMuchTheLeastNeeds) {
  PipelineProblem problem = alike(4, 8, {1, 1, 1});
  for (BlockCosts& c : problem.blocks) c.weight_bytes = 1000;
  problem.memory_cap = 1000;
  EXPECT_EQ(
      error_of([&] { search_schedule(problem, {.tries = 10}); }),
      "pipeline: no schedule fits the memory cap of 1000 B per device; the least needs 1001 B; raise the cap, or use "
      "more devices or smaller micro-batches");
  problem.memory_cap = 1001;
  const FoundSchedule found = search_schedule(problem, {.tries = 10});
  EXPECT_EQ(peak_bytes(found.times), 1001);
  EXPECT_TRUE(found.best_named.empty() || found.best_named == "fast-forward" || found.best_named == "modulo");
}

}  // namespace
}  // namespace overtake
