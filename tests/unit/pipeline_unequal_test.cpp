// Pipelines over devices that differ: cuts against all cuts, searches against the optimum, caps and links by device.

#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <limits>

#include "pipeline_optimum.h"
#include "pipeline_problems.h"
#include "plan/pipeline/cut.h"
#include "plan/pipeline/search.h"

namespace overtake {
namespace {

// All ways to have two to four devices with speeds 1 and 0.5.
std::vector<std::vector<double>> all_speeds() {
  std::vector<std::vector<double>> all;
  for (std::uint32_t devices = 2; devices <= 4; ++devices)
    for (std::uint32_t slow = 0; slow < 1u << devices; ++slow) {
      all.emplace_back();
      for (std::uint32_t d = 0; d < devices; ++d) all.back().push_back((slow >> d & 1) != 0 ? 0.5 : 1);
    }
  return all;
}

PipelineProblem random_problem(std::uint32_t devices, std::uint32_t micro_batches, std::uint32_t stages,
                               std::mt19937& random) {
  PipelineProblem problem{.devices = devices, .micro_batches = micro_batches, .blocks = {}};
  problem.blocks.resize(stages);
  for (BlockCosts& c : problem.blocks)
    c = {roll(random, 1, 9), roll(random, 1, 9), roll(random, 1, 9), roll(random, 2, 5), roll(random, 1, 2), 0};
  return problem;
}

// The time of the slowest chunk on its device, then the sum of squares.
std::pair<std::int64_t, double> unevenness(const PipelineProblem& problem,
                                           const std::vector<std::uint32_t>& first_block,
                                           const std::vector<std::uint32_t>& devices) {
  std::pair<std::int64_t, double> worst{0, 0};
  for (std::size_t c = 0; c < devices.size(); ++c) {
    std::int64_t ns = 0;
    for (std::uint32_t s = first_block[c]; s < first_block[c + 1]; ++s)
      ns += problem.blocks_of_kind[problem.kind_of_device[devices[c]]][s].ns();
    worst.first = std::max(worst.first, ns);
    worst.second += static_cast<double>(ns * ns);
  }
  return worst;
}

TEST(PipelineUnequal, CutsAreTheBestOfAllCuts) {
  std::mt19937 random(4);
  for (const std::vector<double>& speeds : all_speeds()) {
    const auto p = static_cast<std::uint32_t>(speeds.size());
    for (int i = 0; i < 6; ++i) {
      const std::uint32_t n = 2 * p + roll_count(random, 0, 3);
      const PipelineProblem problem = with_speeds(random_problem(p, 4, n, random), speeds);
      for (const PipelineLayout& layout :
           {contiguous_layout(problem), interleaved_layout(problem, 2), v_layout(problem)}) {
        const std::vector<std::uint32_t>& devices = layout.device_of[0];
        std::pair<std::int64_t, double> best{INT64_MAX, 0};
        for (std::uint32_t mask = 0; mask < 1u << (n - 1); ++mask) {
          if (static_cast<std::size_t>(std::popcount(mask)) + 1 != devices.size()) continue;
          std::vector<std::uint32_t> first_block{0};
          for (std::uint32_t s = 0; s + 1 < n; ++s)
            if ((mask >> s & 1) != 0) first_block.push_back(s + 1);
          first_block.push_back(n);
          best = std::min(best, unevenness(problem, first_block, devices));
        }
        ASSERT_EQ(unevenness(problem, layout.first_block, devices), best);
      }
    }
  }
}

// Twelve stages alike: a device of half the speed gets half as many, wherever it stands.
TEST(PipelineUnequal, SlowDevicesGetLess) {
  const PipelineProblem alike_stages = [] {
    PipelineProblem problem = alike(2, 8, {2, 2, 2}, 6);
    return problem;
  }();
  EXPECT_EQ(contiguous_layout(with_speeds(alike_stages, {1, 0.5})).first_block, (std::vector<std::uint32_t>{0, 8, 12}));
  EXPECT_EQ(contiguous_layout(with_speeds(alike_stages, {0.5, 1})).first_block, (std::vector<std::uint32_t>{0, 4, 12}));
  const PipelineProblem dealt = with_speeds(alike_stages, {0.5, 1});
  const PipelineLayout modulo = modulo_layout(dealt, 1);
  EXPECT_EQ(std::ranges::count(modulo.device_of[0], 0u), 4);
  // As the mean would have it, the step takes nine quarters of the work, not two thirds of twice it.
  EXPECT_LT(times_of("1f1b", dealt).makespan_ns, 8 * 4 * 2 * 6 + 2 * 8 * 6);
}

// Every named schedule is legal on every mix of devices, and stays so under the same speeds in another order.
TEST(PipelineUnequal, NamedSchedulesAreLegal) {
  std::mt19937 random(8);
  for (const std::vector<double>& speeds : all_speeds()) {
    const auto p = static_cast<std::uint32_t>(speeds.size());
    const PipelineProblem problem = with_speeds(random_problem(p, 2 * p + 1, 4 * p, random), speeds);
    for (const NamedSchedule& named : named_schedules()) {
      if (named.name == "dualpipe" && p % 2 != 0) continue;
      EXPECT_NO_THROW(verify(problem, make_schedule(named.name, problem))) << named.name;
    }
  }
}

// Kinds that have the same costs are the same as none.
TEST(PipelineUnequal, EqualKindsChangeNothing) {
  std::mt19937 random(12);
  for (int i = 0; i < 12; ++i) {
    PipelineProblem plain = random_problem(roll_count(random, 2, 6), roll_count(random, 2, 12), 12, random);
    plain.transfer_ns = roll(random, 0, 5);
    plain.memory_cap = peak_bytes(times_of("1f1b", plain)) * 3 / 2;
    PipelineProblem described = plain;
    described.memory_cap = {};
    described.memory_caps.assign(plain.devices, *plain.memory_cap);
    described.kind_of_device.assign(plain.devices, 0);
    described.blocks_of_kind.assign(1, plain.blocks);
    described.blocks.assign(12, {1, 1, 1, 1, 1, 1});
    EXPECT_EQ(contiguous_layout(plain), contiguous_layout(described));
    const PipelineTimes a = times_of("zb-v", plain), b = times_of("zb-v", described);
    EXPECT_EQ(a.start_ns, b.start_ns);
    EXPECT_EQ(a.span_ns, b.span_ns);
    EXPECT_EQ(times_of("fast-forward", plain).end_ns, times_of("fast-forward", described).end_ns);
  }
}

TEST(PipelineUnequal, SearchIsCloseToTheOptimum) {
  std::mt19937 random(3);
  double worst = 1, sum = 0;
  int exact = 0, problems = 0;
  for (const std::vector<double>& speeds : all_speeds()) {
    const auto p = static_cast<std::uint32_t>(speeds.size());
    if (p > 3) continue;
    for (int i = 0; i < 8; ++i, ++problems) {
      SCOPED_TRACE(problems);
      PipelineProblem problem =
          with_speeds(random_problem(p, roll_count(random, 1, 4),
                                     p == 2 ? roll_count(random, 2, 5) : roll_count(random, 3, 4), random),
                      speeds);
      if (i % 2 != 0) {
        const PipelineTimes times = times_of("1f1b", problem);
        for (const DeviceTimes& d : times.devices)
          problem.memory_caps.push_back(d.peak_bytes * (i % 4 + 1) / 2 + roll(random, 0, 3));
      }
      const FoundSchedule found = search_schedule(problem, {.tries = 20'000});
      verify(problem, found.schedule);
      for (std::uint32_t d = 0; d < p; ++d) EXPECT_LE(found.times.devices[d].peak_bytes, problem.cap(d));
      PipelineOptimum optimum(problem);
      const std::int64_t best = optimum.solve(found.times.makespan_ns);
      const double ratio = static_cast<double>(found.times.makespan_ns) / static_cast<double>(best);
      EXPECT_LE(ratio, 1.03) << found.times.makespan_ns << " against " << best;
      worst = std::max(worst, ratio);
      sum += ratio;
      exact += best == found.times.makespan_ns ? 1 : 0;
    }
  }
  std::printf("unequal devices: %d of %d exact, %.2f %% over on average, %.2f %% at worst\n", exact, problems,
              100 * (sum / problems - 1), 100 * (worst - 1));
}

// A device that has room for one stage only gets one.
TEST(PipelineUnequal, CapsAreByDevice) {
  PipelineProblem problem = alike(3, 6, {3, 3, 3}, 2);
  for (BlockCosts& c : problem.blocks) c.weight_bytes = 100;
  problem.memory_caps = {1000, 101, 1000};
  const FoundSchedule found = search_schedule(problem, {.tries = 2000});
  verify(problem, found.schedule);
  for (std::uint32_t d = 0; d < 3; ++d) EXPECT_LE(found.times.devices[d].peak_bytes, problem.memory_caps[d]);
  problem.memory_caps = {300, 50, 90};
  EXPECT_EQ(error_of([&] { search_schedule(problem, {.tries = 10}); }),
            "pipeline: no schedule fits the memory caps of 50 B to 300 B per device; the least needs 202 B; raise the "
            "cap, or use more devices or smaller micro-batches");
}

// Two nodes of two devices with a slow link between them: what the search finds crosses it once each way.
TEST(PipelineUnequal, SlowLinksAreAvoided) {
  PipelineProblem problem = alike(4, 8, {10, 10, 10}, 4);
  problem.link_ns.assign(4, std::vector<std::int64_t>(4, 1));
  for (const std::uint32_t a : {0u, 1u})
    for (const std::uint32_t b : {2u, 3u}) problem.link_ns[a][b] = problem.link_ns[b][a] = 400;
  const PipelineLayout layout = search_schedule(problem, {.tries = 5000}).schedule.layout;
  int crossings = 0;
  for (std::uint32_t c = 0; c + 1 < layout.chunks(); ++c)
    crossings += layout.device_of[0][c] / 2 != layout.device_of[0][c + 1] / 2 ? 1 : 0;
  EXPECT_LE(crossings, 1);
}

TEST(PipelineChoice, SeveralHaveTheNamedOnesAndDifferentLayouts) {
  std::mt19937 random(5);
  const PipelineProblem problem = random_problem(4, 8, 16, random);
  const std::vector<FoundSchedule> all = search_schedules(problem, {.tries = 2000}, 4);
  const FoundSchedule best = search_schedule(problem, {.tries = 2000});
  EXPECT_EQ(all[0].schedule.orders, best.schedule.orders);
  EXPECT_EQ(all[0].schedule.layout, best.schedule.layout);
  std::vector<const PipelineLayout*> layouts;  // of those that were found
  for (const FoundSchedule& f : all) {
    if (f.schedule.name != "search") continue;
    for (const PipelineLayout* other : layouts) EXPECT_FALSE(*other == f.schedule.layout);
    layouts.push_back(&f.schedule.layout);
  }
  EXPECT_GE(layouts.size(), 2u);
  EXPECT_LE(layouts.size(), 4u);
  for (const NamedSchedule& named : named_schedules()) {
    const auto has_name = [&](const FoundSchedule& f) { return f.reason == named.name; };
    EXPECT_EQ(std::ranges::any_of(all, has_name), named.name != "dualpipe") << named.name;
  }
  for (const FoundSchedule& f : all) {
    verify(problem, f.schedule);
    EXPECT_EQ(f.schedule.layout.device_of.size(), 1u);
    EXPECT_EQ(f.times.makespan_ns, evaluate(problem, f.schedule).makespan_ns);
  }
}

// A model that knows more than the search: links are slow, and gradients are slower than it thinks.
TEST(PipelineChoice, IsNeverSlowerByTheCallersModel) {
  std::mt19937 random(15);
  for (int i = 0; i < 10; ++i) {
    PipelineProblem problem = random_problem(roll_count(random, 2, 6), roll_count(random, 4, 16), 14, random);
    if (i % 2 == 0) problem.memory_cap = peak_bytes(times_of("1f1b", problem)) * 3 / 2;
    PipelineProblem real = problem;
    real.transfer_ns = 20;
    for (BlockCosts& c : real.blocks) c.input_grad_ns *= 1 + roll(random, 0, 3);
    std::uint64_t asked = 0;
    const auto predict = [&](const PipelineSchedule& s) {
      ++asked;
      return evaluate(real, s).makespan_ns;
    };
    const bool may_repeat_weights = i % 3 == 0;
    const ScheduleSearchOptions options{.tries = 1500, .seed = 1, .may_repeat_weights = may_repeat_weights};
    const FoundSchedule found = best_schedule(problem, options, predict);
    verify(problem, found.schedule);
    EXPECT_LT(asked, 40u);
    EXPECT_EQ(found.predicted_ns, evaluate(real, found.schedule).makespan_ns);
    EXPECT_LE(peak_bytes(found.times), problem.memory_cap.value_or(INT64_MAX));
    for (const NamedSchedule& named : named_schedules()) {
      if (named.name == "dualpipe" && !may_repeat_weights) continue;
      try {
        const PipelineSchedule other = make_schedule(named.name, problem);
        if (problem.memory_cap && peak_bytes(evaluate(problem, other)) > *problem.memory_cap) continue;
        EXPECT_LE(found.predicted_ns, evaluate(real, other).makespan_ns) << named.name;
      } catch (const UserError&) {
        // Not for this pipeline.
      }
    }
    const FoundSchedule again = best_schedule(problem, options, predict);
    EXPECT_EQ(again.schedule.orders, found.schedule.orders);
    EXPECT_EQ(again.schedule.layout, found.schedule.layout);
    EXPECT_EQ(again.reason, found.reason);
    EXPECT_EQ(again.tries, found.tries);
  }
}

}  // namespace
}  // namespace overtake
