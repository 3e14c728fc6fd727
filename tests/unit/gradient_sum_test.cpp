// How micro-batches are added up where gradients are bfloat16 and products can add: every gradient once, in its turn,
// as float32 until the last, whatever the schedule.

#include "plan/divide/gradient_sum.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "machine/kernel_times/kernel_times.h"
#include "passes/weights.h"
#include "plan/divide/detail.h"
#include "plan/divide/micro_batch_sums.h"
#include "plan/pipeline/named.h"
#include "rewrite/uses.h"
#include "unit/gpu_step.h"

namespace overtake {
namespace {

// Scratch, so that a product that writes another type is seen to get its own.
class ScratchTarget final : public GpuTarget {
 public:
  std::int64_t scratch_bytes(const Graph& g, const Task& t) const override {
    const bool is_product = t.op == Op::linear && t.kind == Kind::weight_grad && g.writes(t)[0] != kNone;
    return is_product ? 256 * bytes_of(g.buffers[g.writes(t)[0]].dtype) : 0;
  }
};
const ScratchTarget kTarget;

struct Sums {
  std::size_t by_products = 0, by_themselves = 0;
};

// From the sum that an update reads back to the first: the micro-batches whose gradients are in it.
std::vector<std::uint32_t> micro_batches_of(const Graph& g, BufferId sum, const std::vector<TaskId>& writer,
                                            Sums& counted) {
  const TaskId t = writer[sum];
  const Task& task = g.tasks[t];
  std::vector<std::uint32_t> all;
  if (task.op == Op::sum) {
    all = micro_batches_of(g, g.reads(t)[0], writer, counted);
    const TaskId part = writer[g.reads(t)[1]];
    const bool is_sum =
        g.tasks[part].op == Op::linear && g.reads(part).size() == 3 && g.writes(part)[0] == g.reads(t)[1];
    EXPECT_FALSE(is_sum);  // what it adds would be in twice
    all.push_back(g.tasks[part].micro_batch);
    ++counted.by_themselves;
    return all;
  }
  if (task.op == Op::linear && task.reads == 3) {
    EXPECT_EQ(g.buffers[g.reads(t)[2]].dtype, g.buffers[sum].dtype);
    all = micro_batches_of(g, g.reads(t)[2], writer, counted);
    ++counted.by_products;
  }
  all.push_back(task.micro_batch);
  return all;
}

constexpr std::uint32_t kMicroBatches = 4;

Detail plan_of(const Graph& step, const char* schedule, const Target& target) {
  const BlockGraph blocks = make_blocks(step, kernel_times(step, load_cluster("h200").devices[0]), 24);
  const PipelineProblem problem{
      .devices = 2, .micro_batches = kMicroBatches, .blocks = block_costs(blocks), .memory_cap = {}};
  Detail whole = make_detail(step, blocks, make_outline(blocks, problem, make_schedule(schedule, problem), {}),
                             {.target = &target});
  verify(whole.plan);
  return whole;
}

void check_sums(const Graph& step, const Graph& g) {
  std::map<std::string, BufferId> of_step;  // gradients, by name
  for (const Parameter& p : step.parameters)
    if (p.gradient != kNone) of_step[std::string(step.buffer_name(p.gradient))] = p.gradient;
  const std::vector<TaskId> writer = Uses(g).writer, writer_in_step = Uses(step).writer;
  Sums counted, want;
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].kind != Kind::update) continue;
    const BufferId sum = g.reads(t)[1], gradient = of_step.at(std::string(g.buffer_name(sum)));
    if (step.tasks[writer_in_step[gradient]].op == Op::sum) continue;  // of a weight that two layers share
    EXPECT_EQ(micro_batches_of(g, sum, writer, counted), (std::vector<std::uint32_t>{0, 1, 2, 3}));
    // As in a step of one batch; what is summed on the way is float32.
    EXPECT_EQ(g.buffers[sum].dtype, step.buffers[gradient].dtype) << g.buffer_name(sum);
    const Task& last = g.tasks[writer[sum]];
    EXPECT_TRUE(last.op != Op::sum || g.buffers[g.reads(last)[0]].dtype == DType::f32) << g.buffer_name(sum);
    // Of the products all but the first, which has nothing to add to, and the last, where that is rounded.
    const GradientSum how = gradient_sum(step, gradient, writer_in_step[gradient], &kTarget);
    const std::size_t alone = !how.is_added_by_writer ? kMicroBatches - 1 : how.is_rounded ? 1 : 0;
    want.by_themselves += alone;
    want.by_products += kMicroBatches - 1 - alone;
  }
  EXPECT_EQ(counted.by_products, want.by_products);
  EXPECT_EQ(counted.by_themselves, want.by_themselves);
  EXPECT_GT(want.by_products, 0u);
  EXPECT_GT(want.by_themselves, 0u);
}

TEST(GradientSum, EveryMicroBatchOnceInItsTurnAndRoundedOnce) {
  const std::pair<const char*, const char*> models[] = {
      {"transformer", "layers=2,width=32,heads=2,sequence=8,vocabulary=64,batch=2,dropout=0"},
      {"resnet-18", "image=32,batch=2,classes=10"}};
  for (const auto& [model, settings] : models) {
    const Graph step = gpu_step(model, settings);
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
      SCOPED_TRACE(fmt::format("{} {}", model, schedule));
      check_sums(step, plan_of(step, schedule, GpuTarget()).plan.graph);
    }
  }
}

// A product that makes another type may want more of it.
TEST(GradientSum, ProductsThatAddHaveScratchOfTheirOwn) {
  const Graph step =
      add_scratch(gpu_step("transformer", "layers=1,width=32,heads=2,sequence=8,vocabulary=64,batch=2"), kTarget);
  const Graph g = plan_of(step, "1f1b", kTarget).plan.graph;
  std::set<std::int64_t> sizes;
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].op != Op::linear || g.tasks[t].kind != Kind::weight_grad) continue;
    const Buffer& scratch = g.buffers[g.writes(t).back()];
    ASSERT_EQ(scratch.role, Role::scratch);
    EXPECT_EQ(scratch.shape[0], kTarget.scratch_bytes(g, g.tasks[t])) << g.task_name(t);
    EXPECT_EQ(scratch.device, g.tasks[t].device);
    sizes.insert(scratch.shape[0]);
  }
  EXPECT_EQ(sizes, (std::set<std::int64_t>{512, 1024}));
}

// The task that makes a gradient and adds it takes the place of the one that makes it; other sums come on top.
TEST(GradientSum, WhatProductsAddIsMeasuredWithThem) {
  const Graph step = add_scratch(gpu_step("ffnn", "batch=2"), kTarget);
  const Graph with_sums = with_micro_batch_sums(step, kTarget);
  verify(with_sums);
  const std::size_t all = step.tasks.size(), sums = (with_sums.tasks.size() - all) / 2;
  std::size_t products = 0;
  for (std::size_t i = 0; i < sums; ++i) {
    const Task &first = with_sums.tasks[all + i], &second = with_sums.tasks[all + sums + i];
    ASSERT_EQ(first.op, second.op);
    if (second.op == Op::sum) continue;
    ++products;
    EXPECT_EQ(first.reads, 2u);
    EXPECT_EQ(second.reads, 3u);
    EXPECT_EQ(with_sums.reads(second)[2], with_sums.writes(first)[0]);
    EXPECT_EQ(with_sums.buffers[with_sums.writes(second)[0]].dtype, DType::f32);
  }
  EXPECT_GT(products, 0u);
  std::vector<std::int64_t> ns(all, 1000);
  ns.insert(ns.end(), 2 * sums, 1400);
  // A product: 1000 once, 1400 three times of four. Its bias: 1400 more three times of four.
  std::size_t seen = 0;
  const std::vector<std::int64_t> counted = with_sums_counted(step, ns, 4, kTarget);
  for (TaskId t = 0; t < step.tasks.size(); ++t)
    if (step.tasks[t].op == Op::linear && step.tasks[t].kind == Kind::weight_grad) {
      EXPECT_EQ(counted[t], 1000 + 300 + 1050);
      ++seen;
    } else {
      EXPECT_EQ(counted[t], 1000);
    }
  EXPECT_EQ(seen, products);
}

}  // namespace
}  // namespace overtake
