// A model's step cut into blocks, divided over devices, and simulated.

#include "plan/divide/outline.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "graph/live_memory.h"
#include "machine/gpu_target.h"
#include "machine/kernel_times/kernel_times.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"
#include "pipeline_case.h"
#include "plan/pipeline/named.h"
#include "sim/cluster_simulator.h"

namespace overtake::tests {
namespace {

Graph training_step(const std::string& model, const std::string& settings) {
  PassRunner runner({.skip = {"group_updates"}, .print = {}});  // as for several devices
  return build_training_graph(build_model(model, ModelSettings::parse(settings)), GpuTarget(),
                              {.optimizer = {.kind = OptimizerSettings::Kind::adamw}, .bf16 = true, .extra = {}},
                              runner);
}

BlockGraph blocks_of(const std::string& model, const std::string& settings, std::uint32_t most = 400) {
  const Graph step = training_step(model, settings);
  return make_blocks(step, kernel_times(step, load_cluster("h200").devices[0]), most);
}

JobResult simulated(const Outline& p, const std::string& cluster_name, int steps = 1) {
  const Cluster cluster = load_cluster(cluster_name);
  ClusterJob job{.plan = &p.plan, .work = p.work, .steps = steps};
  std::set<std::uint32_t> devices;
  for (const Lane& lane : p.plan.lanes) devices.insert(lane.device);
  job.devices.assign(devices.begin(), devices.end());
  const bool is_ideal = cluster.network == NetworkKind::ideal;
  ClusterOptions options{.speeds = {}, .failures = {}, .protocol = is_ideal ? Protocol::ideal : Protocol::automatic};
  options.overlap_slows = !is_ideal;
  return simulate(cluster, make_topology(cluster), {&job, 1}, options)[0];
}

std::int64_t total_ns(std::span<const TaskCost> work) {
  return std::accumulate(work.begin(), work.end(), std::int64_t{0},
                         [](std::int64_t sum, const TaskCost& w) { return sum + w.ns; });
}

const std::pair<const char*, const char*> kModels[] = {
    {"resnet-18", "image=32,batch=2,classes=10"},  // batch norm: weight gradients that input gradients wait for
    {"gpt2", "layers=3,width=64,heads=2,sequence=16,positions=16,vocabulary=100,batch=2"},  // tied weights
    {"densenet-121", "image=32,batch=2"},
    {"lstm", "batch=2"}};

TEST(Blocks, HoldAllOfTheStepsWorkAndBytes) {
  for (const auto& [model, settings] : kModels) {
    SCOPED_TRACE(model);
    const Graph step = training_step(model, settings);
    const std::vector<TaskCost> work = kernel_times(step, load_cluster("h200").devices[0]);
    std::int64_t weights = 0, gradients = 0;
    for (const Parameter& p : step.parameters) {
      if (step.buffers[p.buffer].role == Role::weight) weights += step.bytes(p.buffer);
      if (p.gradient != kNone) gradients += step.bytes(p.gradient);
    }
    for (const std::uint32_t most : {400u, 5u, 1u}) {
      const BlockGraph blocks = make_blocks(step, work, most);
      verify(blocks.graph);
      EXPECT_LE(blocks.blocks.size(), most);
      EXPECT_EQ(total_ns(blocks.work), total_ns(work));
      std::int64_t block_weights = 0, block_gradients = 0, reduced = 0;
      for (const Buffer& b : blocks.graph.buffers)
        if (b.role == Role::weight) block_weights += b.shape[0];
      for (const BlockGraph::Block& b : blocks.blocks)
        for (const BufferId g : b.gradients) block_gradients += blocks.graph.bytes(g);
      for (const BlockGraph::Block& b : blocks.blocks)
        for (const BufferId g : b.reduced) reduced += blocks.graph.bytes(g);
      EXPECT_EQ(block_weights, weights);
      EXPECT_EQ(reduced, gradients);  // that of a tied weight once
      // A tied weight has one gradient of each use.
      if (std::string(model) == "gpt2") {
        EXPECT_GT(block_gradients, gradients);
      } else {
        EXPECT_EQ(block_gradients, gradients);
      }
    }
  }
}

TEST(Blocks, RecomputingTradesMemoryForTime) {
  const BlockGraph kept =
      blocks_of("gpt2", "layers=4,width=256,heads=4,sequence=64,positions=64,vocabulary=100,batch=4", 6);
  const BlockGraph again = recompute(kept);
  verify(again.graph);
  const auto sum = [](const std::vector<BlockCosts>& costs, auto member) {
    std::int64_t all = 0;
    for (const BlockCosts& c : costs) all += c.*member;
    return all;
  };
  const std::vector<BlockCosts> before = block_costs(kept), after = block_costs(again);
  EXPECT_LT(sum(after, &BlockCosts::activation_bytes), sum(before, &BlockCosts::activation_bytes) / 2);
  EXPECT_GT(sum(after, &BlockCosts::input_grad_ns), sum(before, &BlockCosts::input_grad_ns));
  EXPECT_LE(sum(after, &BlockCosts::input_grad_ns),
            sum(before, &BlockCosts::input_grad_ns) + sum(before, &BlockCosts::forward_ns));
  EXPECT_EQ(sum(after, &BlockCosts::forward_ns), sum(before, &BlockCosts::forward_ns));
}

// Where transfers take no time, what the cluster does is what the model of blocks says.
TEST(Outline, AnIdealClusterRunsEverySchedulePerfectly) {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    const std::uint32_t devices = 2 * (1 + below(3)), micro_batches = 2 * devices + 2 * below(5);
    const auto ns = [&] { return std::int64_t{1000} + below(5000); };
    const BlockGraph blocks = synthetic_blocks(2 * devices, ns(), ns(), ns());
    const PipelineProblem problem = problem_of(blocks, devices, micro_batches);
    for (const NamedSchedule& named : named_schedules()) {
      SCOPED_TRACE(fmt::format("{} on {} devices, {} micro-batches", named.name, devices, micro_batches));
      const PipelineSchedule schedule = make_schedule(named.name, problem);
      const Outline p = make_outline(blocks, problem, schedule, {});
      verify(p.plan.graph);
      const JobResult result = simulated(p, fmt::format("ideal:{}", devices));
      ASSERT_TRUE(result.is_finished) << (result.stuck.empty() ? "" : result.stuck[0].why);
      EXPECT_EQ(result.makespan_ns, evaluate(problem, schedule).makespan_ns);
    }
  }
}

TEST(Outline, EveryScheduleComputesTheSameWork) {
  for (const auto& [model, settings] : kModels) {
    const BlockGraph blocks = blocks_of(model, settings, 24);
    if (blocks.blocks.size() < 8) continue;
    std::int64_t update_ns = 0;  // and of ties: once in a step
    for (const BlockGraph::Block& b : blocks.blocks)
      for (const TaskId t : {b.tie, b.update}) update_ns += t == kNone ? 0 : blocks.work[t].ns;
    const PipelineProblem problem = problem_of(blocks, 4, 8);
    for (const NamedSchedule& named : named_schedules()) {
      const PipelineSchedule schedule = make_schedule(named.name, problem);
      for (const ReductionOrder order :
           {ReductionOrder::buckets, ReductionOrder::by_layer, ReductionOrder::scatter_gather}) {
        SCOPED_TRACE(fmt::format("{} {} {}", model, named.name, static_cast<int>(order)));
        const Outline p = make_outline(blocks, problem, schedule, {.replicas = 2, .order = order});
        verify(p.plan.graph);
        const auto copies = static_cast<std::int64_t>(schedule.layout.device_of.size());  // of weights and updates
        EXPECT_EQ(total_ns(p.work), 2 * (8 * (total_ns(blocks.work) - update_ns) + copies * update_ns));
        const JobResult result = simulated(p, "dgx-h100", 2);
        ASSERT_TRUE(result.is_finished) << (result.stuck.empty() ? "" : result.stuck[0].why);
        EXPECT_GE(result.trace.step_ns, total_ns(p.work) / 8);
      }
    }
  }
}

// The two routes of one pipeline have nobody to gather with in the next step.
TEST(Outline, OneReplicaDelaysNothing) {
  const BlockGraph blocks = blocks_of("resnet-18", "image=32,batch=2,classes=10", 16);
  const PipelineProblem problem = problem_of(blocks, 4, 8);
  const PipelineSchedule schedule = make_schedule("dualpipe", problem);
  const Outline p = make_outline(blocks, problem, schedule, {.order = ReductionOrder::scatter_gather});
  verify(p.plan.graph);
  EXPECT_FALSE(has_delayed_tasks(p.plan));
}

TEST(Outline, ReplicasReduceEachGradientOnce) {
  const BlockGraph blocks = blocks_of("resnet-18", "image=32,batch=2,classes=10");
  const PipelineProblem problem = problem_of(blocks, 1, 3);
  const PipelineSchedule schedule = make_schedule("1f1b", problem);
  std::int64_t gradients = 0;
  for (const BlockGraph::Block& b : blocks.blocks)
    for (const BufferId g : b.gradients) gradients += blocks.graph.bytes(g);
  for (const ReductionOrder order :
       {ReductionOrder::buckets, ReductionOrder::by_layer, ReductionOrder::scatter_gather}) {
    const Outline p = make_outline(blocks, problem, schedule, {.replicas = 4, .order = order, .bucket_bytes = 1 << 20});
    std::int64_t reduced = 0, gathered = 0;
    std::set<std::int64_t> collectives;
    for (TaskId t = 0; t < p.plan.graph.tasks.size(); ++t) {
      const Task& task = p.plan.graph.tasks[t];
      if (task.op != Op::transfer) continue;
      collectives.insert(p.plan.graph.attrs_of(task).integer("collective"));
      for (const BufferId b : p.plan.graph.reads(t))
        (task.kind == Kind::all_gather ? gathered : reduced) += p.plan.graph.bytes(b);
    }
    EXPECT_EQ(reduced, 4 * gradients);
    if (order == ReductionOrder::scatter_gather) {
      EXPECT_NEAR(static_cast<double>(gathered), static_cast<double>(gradients), 4 * 4 * 200);
    }
    if (order == ReductionOrder::buckets) {
      EXPECT_LE(static_cast<std::int64_t>(collectives.size()), 1 + gradients / (1 << 20));
    } else {
      EXPECT_GT(collectives.size(), 8u);
    }
  }
}

// On a slow network, with a layer's gradients sent as soon as they are there, forward need not wait for all of them.
TEST(Outline, OrdersOfReductionHideMoreAndMore) {
  const BlockGraph blocks = blocks_of("resnet-50", "batch=32");
  const PipelineProblem problem = problem_of(blocks, 1, 1);
  const PipelineSchedule schedule = make_schedule("1f1b", problem);
  const auto period = [&](ReductionOrder order, std::uint32_t k) {
    return simulated(make_outline(blocks, problem, schedule, {.replicas = 4, .order = order, .first_k = {k}}),
                     "p3.8xlarge:4", 4)
        .trace.step_ns;
  };
  const std::int64_t buckets = period(ReductionOrder::buckets, 0), by_layer = period(ReductionOrder::by_layer, 0);
  std::int64_t best = by_layer;
  for (const std::uint32_t k : {20u, 50u, 80u}) best = std::min(best, period(ReductionOrder::by_layer, k));
  EXPECT_LE(by_layer, buckets);
  EXPECT_LE(best, by_layer);
}

TEST(Outline, MemoryOfAPipelineIsItsSchedules) {
  const BlockGraph blocks = synthetic_blocks(4, 1000, 1000, 1000);
  for (const auto& [name, first] : {std::pair{"gpipe", 8}, std::pair{"1f1b", 4}}) {
    const PipelineProblem problem = problem_of(blocks, 4, 8);
    const Outline p = make_outline(blocks, problem, make_schedule(name, problem), {});
    const JobResult result = simulated(p, "ideal:4");
    std::int64_t peak = 0;
    const std::vector<std::vector<MemorySample>> memory = live_memory(p.plan, result.trace);
    for (const MemorySample& s : memory[0]) peak = std::max(peak, s.bytes[1]);
    EXPECT_EQ(peak, first) << name;
  }
}

}  // namespace
}  // namespace overtake::tests
