// What is predicted of plans where they run: as ranks, as virtual GPUs, one after the other; and what is chosen by it.

#include "overtake/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "machine/gpu_target.h"
#include "machine/kernel_times/kernel_times.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"
#include "pipeline_case.h"
#include "plan/divide/step_planner.h"
#include "plan/pipeline/named.h"

namespace overtake::tests {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr LinkTimes kNoTime{.latency_ns = 0, .bytes_per_s = std::int64_t{1} << 50, .busy_cores = 0};

Outline pipeline_of(const BlockGraph& blocks, const PipelineProblem& problem, const char* name) {
  return make_outline(blocks, problem, make_schedule(name, problem), {});
}

double ms(std::int64_t ns) { return static_cast<double>(ns) * 1e-6; }

// Ranks tell one another their losses at the end of a step, so none begins the next before all are done.
TEST(Machine, RanksEndTheirStepsTogether) {
  const BlockGraph blocks = synthetic_blocks(8, kMs, kMs, kMs);
  const PipelineProblem problem = problem_of(blocks, 4, 8);
  const Machine machine = machine_of_ranks(kNoTime, {1, 1, 1, 1}, 1);
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
    const Outline plan = pipeline_of(blocks, problem, name);
    const std::int64_t makespan = evaluate(problem, make_schedule(name, problem)).makespan_ns;
    EXPECT_NEAR(ms(predict_step(plan, machine).step_ns()), ms(makespan), 0.001 * ms(makespan)) << name;
  }
}

TEST(Machine, RanksThatShareACoreAreSlower) {
  const BlockGraph blocks = synthetic_blocks(4, kMs, kMs, kMs);
  const PipelineProblem problem = problem_of(blocks, 2, 4);
  const Outline plan = pipeline_of(blocks, problem, "1f1b");
  const double whole = ms(predict_step(plan, machine_of_ranks(kNoTime, {1, 1}, 1)).step_ns());
  EXPECT_NEAR(ms(predict_step(plan, machine_of_ranks(kNoTime, {0.5, 0.5}, 1)).step_ns()), 2 * whole, 0.01 * whole);
}

// Three times as fast, three times as many of the blocks.
TEST(Machine, RanksGetStagesThatSuitTheirSpeeds) {
  const Workload work{.blocks = synthetic_blocks(16, kMs, kMs, kMs)};
  const ParallelOptions options{.stages = 2, .micro_batches = 4, .pipeline = "1f1b"};
  const auto first_of_second = [&](const std::vector<double>& shares) {
    const Machine machine = machine_of_ranks(kNoTime, shares, 1);
    return StepPlanner(work, options, machine).choices()[0].schedule.layout.first_block[1];
  };
  EXPECT_EQ(first_of_second({1, 1}), 8u);
  EXPECT_EQ(first_of_second({0.5, 0.5}), 8u);
  EXPECT_EQ(first_of_second({1, 1.0 / 3}), 12u);
  EXPECT_EQ(first_of_second({1.0 / 3, 1}), 4u);
}

// Every message is late by the latency, which is what the model of pipelines calls transfer_ns.
TEST(Machine, VirtualGpusHaveTheirLinks) {
  const BlockGraph blocks = synthetic_blocks(4, kMs, kMs, kMs);
  PipelineProblem problem = problem_of(blocks, 4, 4);
  const Outline plan = pipeline_of(blocks, problem, "1f1b");
  const Machine machine = machine_of_virtual_gpus(4, {.bytes_per_s = 1'000'000'000, .latency_ns = kMs / 2});
  problem.transfer_ns = kMs / 2;
  const std::int64_t expected = evaluate(problem, make_schedule("1f1b", problem)).makespan_ns;
  EXPECT_NEAR(ms(predict_step(plan, machine).step_ns()), ms(expected), 0.001 * ms(expected));
}

TEST(Machine, OneLaneTakesTheSum) {
  const BlockGraph blocks = synthetic_blocks(4, kMs, 2 * kMs, 3 * kMs);
  const PipelineProblem problem = problem_of(blocks, 2, 4);
  EXPECT_EQ(predict_step(pipeline_of(blocks, problem, "1f1b"), Machine{}).step_ns(), 4 * 4 * 6 * kMs);
}

struct Step {
  Workload work;
  PipelineProblem pipeline;
};

Step step_of(const std::string& model, const std::string& settings, std::uint32_t stages, std::uint32_t micro_batches) {
  PassRunner runner({.skip = {"group_updates"}, .print = {}});  // as for several devices
  const Graph step = build_training_graph(build_model(model, ModelSettings::parse(settings)), GpuTarget(),
                                          {.optimizer = {}, .extra = {}}, runner);
  Step out{{.blocks = make_blocks(step, kernel_times(step, load_cluster("h200").devices[0]), 64)}, {}};
  out.pipeline = problem_of(out.work.blocks, stages, micro_batches);
  return out;
}

// Of the step's own time: how long the link takes for all gradients.
LinkTimes link_taking(double share, const Step& step) {
  std::int64_t ns = 0, bytes = 0;
  for (const TaskCost& w : step.work.blocks.work) ns += w.ns;
  for (const BlockGraph::Block& b : step.work.blocks.blocks)
    for (const BufferId g : b.gradients) bytes += step.work.blocks.graph.bytes(g);
  return {
      .latency_ns = 100,
      .bytes_per_s = static_cast<std::int64_t>(1e9 * static_cast<double>(bytes) / (share * static_cast<double>(ns))),
      .busy_cores = 0};
}

TEST(PlanChoices, OfFirstKAreTheBestAndByLayer) {
  const Step step = step_of("resnet-50", "batch=8,image=64", 1, 1);
  const ParallelOptions options{.replicas = 2, .reduce = "first-k"};
  const Machine machine = machine_of_ranks(link_taking(0.8, step), {1, 1}, 1);
  const StepPlanner planner(step.work, options, machine);
  const std::vector<PlanChoice> found = planner.choices();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(std::ranges::is_sorted(found, {}, &PlanChoice::predicted_ns));
  EXPECT_EQ(std::ranges::count(found, FirstK{}, &PlanChoice::first_k), 1);
  EXPECT_GT(found[0].first_k.k, 0u);
  // No k is predicted to be better by more than a hair: the search looks at a few only.
  for (std::uint32_t k = 0; k <= step.work.blocks.blocks.size(); ++k) {
    const PlanChoice other{.schedule = found[0].schedule, .reduce = "first-k", .first_k = {k}};
    EXPECT_GE(1.01 * ms(planner.predict(other).step_ns()), ms(found[0].predicted_ns)) << k;
  }
}

// A first layer whose gradient takes a third of backward to send, and a link that has little time to spare. Late weight
// gradients give the device work meanwhile; but those of the first layers are sent right before forward needs them, so
// only those of later ones help.
TEST(PlanChoices, OfFirstKMayBeginFurtherUp) {
  constexpr std::uint32_t kLayers = 12;
  BlockGraph blocks = synthetic_blocks(kLayers, 10'000'000, 10'000'000, 10'000'000);
  for (std::uint32_t b = 0; b < kLayers; ++b)
    blocks.graph.buffers[blocks.blocks[b].gradients[0]].shape = {b == 0 ? 80'000'000 : 20'000'000};
  const ParallelOptions options{.replicas = 2, .reduce = "first-k"};
  const Workload work{.blocks = blocks};
  const Machine machine =
      machine_of_ranks({.latency_ns = 100, .bytes_per_s = 1'000'000'000, .busy_cores = 0}, {1, 1}, 1);
  const StepPlanner planner(work, options, machine);
  const std::vector<PlanChoice> found = planner.choices();
  const auto predicted = [&](FirstK first_k) {
    const PlanChoice other{.schedule = found[0].schedule, .reduce = "first-k", .first_k = first_k};
    return ms(planner.predict(other).step_ns());
  };
  double first = predicted({}), any = first;
  for (std::uint32_t k = 1; k <= kLayers; ++k)
    for (std::uint32_t from = 0; from + k <= kLayers; ++from) {
      any = std::min(any, predicted({k, from}));
      if (from == 0) first = std::min(first, predicted({k}));
    }
  EXPECT_LT(1.1 * any, first);
  EXPECT_LT(1.1 * any, predicted({}));
  EXPECT_DOUBLE_EQ(ms(found[0].predicted_ns), any);
  EXPECT_GT(found[0].first_k.from, 0u);
}

TEST(PlanChoices, OfAutoAreNeverBehindWhatCanBeGiven) {
  const Step step = step_of("resnet-18", "batch=8,image=64", 1, 1);
  const ParallelOptions options{.replicas = 2, .reduce = "auto"};
  for (const double share : {0.1, 0.8, 3.0}) {
    const Machine machine = machine_of_ranks(link_taking(share, step), {1, 1}, 1);
    const StepPlanner planner(step.work, options, machine);
    const std::vector<PlanChoice> found = planner.choices();
    for (const char* reduce : {"buckets", "by-layer", "scatter-gather"}) {
      const PlanChoice other{.schedule = found[0].schedule, .reduce = reduce};
      EXPECT_GE(planner.predict(other).step_ns(), found[0].predicted_ns) << reduce << share;
    }
  }
}

TEST(PlanChoices, OfASearchAreNeverBehindANamedSchedule) {
  const Step step = step_of("gpt2", "layers=6,width=64,heads=2,sequence=16,positions=16,vocabulary=100,batch=2", 4, 8);
  const ParallelOptions options{.stages = 4, .micro_batches = 8, .pipeline = "search", .search_tries = 2000};
  const Machine machine = machine_of_virtual_gpus(4, {.bytes_per_s = 1'000'000'000, .latency_ns = 5000});
  const StepPlanner planner(step.work, options, machine);
  const std::vector<PlanChoice> found = planner.choices();
  EXPECT_LE(found.size(), 3u);
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    const PlanChoice other{.schedule = make_schedule(name, step.pipeline), .reduce = "buckets"};
    EXPECT_GE(planner.predict(other).step_ns(), found[0].predicted_ns) << name;
  }
}

}  // namespace
}  // namespace overtake::tests
