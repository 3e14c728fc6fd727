#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "exec/cpu/target.h"
#include "overtake/model.h"
#include "overtake/zoo.h"
#include "passes/differentiate.h"
#include "passes/fuse.h"
#include "passes/layout.h"
#include "passes/precision.h"
#include "passes/training_passes.h"
#include "passes/weights.h"
#include "plan/in_order.h"
#include "plan/lanes/joint_schedule.h"
#include "plan/memory.h"
#include "rewrite/uses.h"
#include "run_setup.h"

namespace overtake {
namespace {

Graph zoo_model(const std::string& name, const std::string& settings = "") {
  return build_model(name, ModelSettings::parse(settings));
}

Graph training_graph(Graph forward, const OptimizerSettings& optimizer = {}) {
  const CpuTarget target;
  PassRunner runner;
  TrainingPassOptions options;
  options.optimizer = optimizer;
  return build_training_graph(std::move(forward), target, options, runner);
}

std::size_t count_op(const Graph& g, Op op, Kind kind = Kind::forward) {
  return static_cast<std::size_t>(
      std::ranges::count_if(g.tasks, [&](const Task& t) { return t.op == op && t.kind == kind; }));
}

TEST(PassRunner, RunsTimesAndRecords) {
  PassRunner runner;
  const Pass<Graph> slow{"slow", [](Graph g) {
                           std::this_thread::sleep_for(std::chrono::milliseconds(20));
                           return g;
                         }};
  runner.run(slow, zoo_model("ffnn"));
  const Graph g =
      runner.run(Pass<Graph>{"differentiate", differentiate, is_forward_only, is_differentiated}, zoo_model("ffnn"));
  EXPECT_TRUE(is_differentiated(g));
  ASSERT_EQ(runner.records().size(), 2u);
  EXPECT_EQ(runner.records()[0].name, "slow");
  EXPECT_GE(runner.records()[0].ms, 20.0);
  EXPECT_EQ(runner.records()[1].name, "differentiate");
  EXPECT_FALSE(runner.records()[1].skipped);
}

TEST(PassRunner, SkipsByName) {
  PassRunner runner({.skip = {"fuse"}, .print = {}});
  const Graph before = zoo_model("ffnn");
  EXPECT_EQ(print(runner.run(Pass<Graph>{"fuse", [](Graph x) { return fuse(std::move(x)); }}, Graph(before))),
            print(before));
  EXPECT_TRUE(runner.records().at(0).skipped);
  const CpuTarget target;
  const Graph whole = build_training_graph(zoo_model("cnn"), target, {}, runner);
  EXPECT_GT(count_op(whole, Op::activation), 0u);  // the pipeline's fuse was skipped as well
  EXPECT_EQ(runner.records().size(), 1 + training_passes(target, {}).size());
}

TEST(PassRunner, PrintsWhereSomethingChanged) {
  std::vector<std::string> texts;
  PassRunner runner({.skip = {}, .print = [&](const std::string& text) { texts.push_back(text); }});
  Graph g = runner.run(Pass<Graph>{"nothing", [](Graph x) { return x; }}, zoo_model("ffnn"));
  EXPECT_TRUE(texts.empty());
  EXPECT_FALSE(runner.records().at(0).changed);
  g = runner.run(Pass<Graph>{"fuse", [](Graph x) { return fuse(std::move(x)); }}, std::move(g));
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(runner.records().at(1).changed);
  EXPECT_EQ(texts[0].find("after fuse ("), 0u) << texts[0];
  EXPECT_NE(texts[0].find(print(g)), std::string::npos);
}

// Whether or not anybody prints, and whatever of the graph it is.
TEST(PassRunner, RecordsWhatChanged) {
  PassRunner runner;
  const auto changes = [&](const std::function<void(Graph&)>& change, Graph g) {
    runner.run(Pass<Graph>{"pass",
                           [&](Graph x) {
                             change(x);
                             return x;
                           }},
               std::move(g));
    return runner.records().back().changed;
  };
  Graph g = zoo_model("cnn", "batch=2,width=4");
  const std::vector<float> values = {1, 2, 3};
  const auto bytes = std::as_bytes(std::span(values));
  const auto constant = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  g.constants.push_back({g.add_buffer("c", {3}, DType::f32, Role::constant), constant});
  EXPECT_FALSE(changes([](Graph&) {}, g));
  EXPECT_FALSE(changes([](Graph& x) { x.intern("a name that nothing has"); }, g));
  EXPECT_FALSE(changes(
      [](Graph& x) {  // the same tasks, stored anew
        const Graph old = x;
        x.tasks.clear();
        x.operands.clear();
        x.intern("another first");
        for (TaskId t = 0; t < old.tasks.size(); ++t) add_like(x, old.tasks[t], old.reads(t), old.writes(t));
      },
      g));
  EXPECT_TRUE(changes([](Graph& x) { x.buffers[0].layout = channels_last_layout(); }, g));
  EXPECT_TRUE(changes([](Graph& x) { x.tasks.back().micro_batch = 3; }, g));
  EXPECT_TRUE(changes([](Graph& x) { x.parameters[0].stored_rows = 1; }, g));
  EXPECT_TRUE(changes(
      [](Graph& x) { x.parameters[0].stored_shape = Shape{x.buffers[x.parameters[0].buffer].shape.elements()}; }, g));
  EXPECT_TRUE(changes([](Graph& x) { x.parameters[0].init.scale += 1; }, g));
  EXPECT_TRUE(changes([](Graph& x) { x.buffers[0].name = x.intern("renamed"); }, g));
  EXPECT_TRUE(changes([](Graph& x) { x.parts = 7; }, g));
  EXPECT_TRUE(changes(
      [&](Graph& x) {
        auto others = *constant;
        others[0] = std::byte{77};
        x.constants.back().bytes = std::make_shared<const std::vector<std::byte>>(std::move(others));
      },
      g));
  const auto attrs = [](Graph& x, const char* name, AttrValue value) {
    Attrs changed = x.attrs_of(x.tasks[0]);
    changed.set(name, std::move(value));
    x.tasks[0].attrs = x.add_attrs(changed);
  };
  EXPECT_TRUE(changes([&](Graph& x) { attrs(x, "own", std::int64_t{3}); }, g));
  EXPECT_FALSE(changes([&](Graph& x) { attrs(x, "stride", x.attrs_of(x.tasks[0]).integers("stride")); }, g));
  EXPECT_TRUE(changes([](Graph& x) { x = differentiate(std::move(x)); }, g));
}

TEST(PassRunner, ChecksNeedsGrantsAndTheResult) {
  PassRunner runner;
  const auto no = [](const Graph&) { return false; };
  const auto same = [](Graph g) { return g; };
  EXPECT_THROW(runner.run(Pass<Graph>{"needy", same, no}, zoo_model("ffnn")), InternalError);
  EXPECT_THROW(runner.run(Pass<Graph>{"liar", same, nullptr, no}, zoo_model("ffnn")), InternalError);
  const Pass<Graph> breaker{"breaker", [](Graph g) {
                              g.add_task(Kind::forward, Op::activation, 0, 0, {g.losses[0]}, {g.losses[0]});
                              return g;
                            }};
  EXPECT_THROW(runner.run(breaker, zoo_model("ffnn")), InternalError);
  EXPECT_THROW(runner.run(Pass<Graph>{"twice", differentiate, is_forward_only}, differentiate(zoo_model("ffnn"))),
               InternalError);
}

TEST(PassRunner, RunsPassesOnPlansToo) {
  PassRunner runner;
  const Pass<Plan> memory{"memory", [](Plan p) { return place_memory(std::move(p)); }, nullptr, has_memory};
  const Plan plan = runner.run(memory, schedule_in_order(training_graph(zoo_model("ffnn"))));
  EXPECT_TRUE(has_memory(plan));
  EXPECT_TRUE(runner.records().back().changed) << "where its buffers are";
  runner.run(Pass<Plan>{"nothing", [](Plan p) { return p; }}, Plan(plan));
  EXPECT_FALSE(runner.records().back().changed);
}

struct NormCounts {
  int plain = 0, relu = 0, residual = 0, residual_relu = 0;
  bool operator==(const NormCounts&) const = default;
};
NormCounts norms_of(const Graph& g) {
  NormCounts n;
  for (const Task& t : g.tasks) {
    if (t.op != Op::batch_norm || t.kind != Kind::forward) continue;
    const bool has_residual = g.reads(t)[1] != kNone, is_relu = g.attrs_of(t).text("function") == "relu";
    ++(has_residual ? (is_relu ? n.residual_relu : n.residual) : (is_relu ? n.relu : n.plain));
  }
  return n;
}

TEST(Fuse, CountsOnResNet18) {
  const Graph before = zoo_model("resnet-18"), after = fuse(before);
  EXPECT_EQ(norms_of(before), (NormCounts{.plain = 20}));
  EXPECT_EQ(count_op(before, Op::activation), 17u);
  EXPECT_EQ(count_op(before, Op::add), 8u);
  // One at the stem and one in each of eight blocks take a relu; each block's sum takes a sum and a relu; of the three
  // projections and the norms beside them, one of each pair stays plain.
  EXPECT_EQ(norms_of(after), (NormCounts{.plain = 3, .relu = 9, .residual_relu = 8}));
  EXPECT_EQ(count_op(after, Op::activation), 0u);
  EXPECT_EQ(count_op(after, Op::add), 0u);
  EXPECT_EQ(before.tasks.size() - after.tasks.size(), 17u + 8u);
}

TEST(Fuse, LinearTakesItsFunction) {
  const Graph ffnn = fuse(zoo_model("ffnn", "layers=3"));
  EXPECT_EQ(count_op(ffnn, Op::activation), 0u);
  const Graph decoder = fuse(zoo_model("transformer", "layers=2"));
  EXPECT_EQ(count_op(decoder, Op::activation), 0u);
  for (const Task& t : decoder.tasks)
    if (t.op == Op::linear && decoder.attrs_of(t).has("function")) {
      EXPECT_EQ(t.writes, 2) << "gelu's derivative needs what it was applied to";
    }
}

TEST(Fuse, NotWhereSomebodyElseLooks) {
  Model m("seen", 2);
  const Value norm = m.batch_norm(m.conv2d(m.input({3, 4, 4}), {.out = 3}), {}, "norm");
  const Value fc = m.linear(m.flatten(norm), {.out = 3}, "fc");
  m.mean_squared_error(m.add(m.activation(fc, "gelu"), m.add(fc, m.linear(m.flatten(m.relu(norm)), {.out = 3}))));
  const Graph before = std::move(m).finish(), after = fuse(before);
  EXPECT_EQ(print(after), print(before));
}

TEST(Fuse, OnlyWhatOneKernelCanDo) {
  Model m("others", 2);
  Value x = m.batch_norm(m.conv2d(m.input({3, 4, 4}), {.out = 3}), {}, "norm");
  x = m.flatten(m.activation(x, "gelu"));                                 // no such batch norm
  x = m.activation(m.linear(x, {.out = 4, .function = "relu"}), "tanh");  // has a function already
  m.mean_squared_error(m.add(m.layer_norm(x), x));                        // no batch norm
  const Graph before = std::move(m).finish();
  EXPECT_EQ(print(fuse(before)), print(before));
}

std::vector<float> losses_of(const Graph& forward, bool is_fused) {
  RunSetup options = in_order_setup();
  options.spec.parts = 2;
  if (!is_fused) options.spec.skip_passes = {"fuse"};
  TrainingRun training = run_of(forward, options);
  training.fill_inputs(1);
  std::vector<float> losses;
  for (int i = 0; i < 4; ++i) losses.push_back(training.step(0.01f).loss);
  losses.push_back(training.evaluate().loss);
  return losses;
}

TEST(Fuse, ChangesNoLossBeyondRounding) {
  for (const auto& [name, settings] : std::vector<std::pair<std::string, std::string>>{
           {"cnn", "batch=4"},
           {"resnet-18", "batch=2,image=32,classes=10"},
           {"ffnn", "batch=8"},
           {"transformer", "batch=2,layers=2,width=32,heads=4,sequence=16,dropout=0.1"}}) {
    SCOPED_TRACE(name);
    const Graph forward = zoo_model(name, settings);
    const std::vector<float> fused = losses_of(forward, true), plain = losses_of(forward, false);
    for (std::size_t i = 0; i < fused.size(); ++i) {
      ASSERT_TRUE(std::isfinite(fused[i]));
      EXPECT_NEAR(fused[i], plain[i], 2e-4 * std::fabs(plain[i])) << "step " << i;
    }
    EXPECT_NEAR(fused[0], plain[0], 1e-6 * std::fabs(plain[0]));
  }
}

BufferId find_buffer(const Graph& g, const std::string& name) {
  for (BufferId b = 0; b < g.buffers.size(); ++b)
    if (g.buffer_name(b) == name) return b;
  return kNone;
}

const Task& writer_of(const Graph& g, BufferId b) {
  for (const Task& t : g.tasks)
    if (std::ranges::find(g.writes(t), b) != g.writes(t).end()) return t;
  throw std::out_of_range("nothing writes it");
}

// The gradients of a value with several uses are added up from the last use to the first.
TEST(Differentiate, FanOutIsSummedInReverseOrderOfUses) {
  Model m("fan", 2);
  const Value x = m.linear(m.input({3}), {.out = 4}, "fc");
  const Value a = m.activation(x, "tanh", "first"), b = m.activation(x, "gelu", "second"),
              c = m.activation(x, "silu", "third");
  m.mean_squared_error(m.mul(m.mul(c, a, "inner"), b, "outer"));
  const Graph g = differentiate(std::move(m).finish());
  const Task& sum = writer_of(g, find_buffer(g, "fc.grad.sum"));
  EXPECT_EQ(sum.op, Op::sum);
  EXPECT_EQ(sum.kind, Kind::input_grad);
  std::vector<std::string> layers;
  for (const BufferId part : g.reads(sum)) layers.push_back(g.layer_name(writer_of(g, part).layer));
  EXPECT_EQ(layers, (std::vector<std::string>{"third", "second", "first"}));
  EXPECT_EQ(count_op(g, Op::sum, Kind::input_grad), 1u);
}

TEST(Differentiate, TiedWeightsAreSummedOnce) {
  const Graph g = differentiate(zoo_model("transformer", "layers=1"));
  const Task& sum = writer_of(g, find_buffer(g, "wte.weight.grad.sum"));
  EXPECT_EQ(sum.kind, Kind::weight_grad);
  ASSERT_EQ(sum.reads, 2);
  EXPECT_EQ(writer_of(g, g.reads(sum)[0]).op, Op::linear);  // the head is used last
  EXPECT_EQ(writer_of(g, g.reads(sum)[1]).op, Op::embedding);
}

TEST(Differentiate, EveryWeightHasAGradientOfItsShape) {
  for (const char* name : {"ffnn", "lenet", "cnn", "resnet-50", "transformer", "lstm", "gru"}) {
    const Graph g = differentiate(zoo_model(name, "batch=2"));
    for (const Parameter& p : g.parameters) {
      const bool is_trained = g.buffers[p.buffer].role == Role::weight;
      ASSERT_EQ(p.gradient != kNone, is_trained) << g.buffer_name(p.buffer);
      if (!is_trained) continue;
      EXPECT_EQ(g.buffers[p.gradient].shape, g.buffers[p.buffer].shape);
      EXPECT_EQ(writer_of(g, p.gradient).kind, Kind::weight_grad);
    }
    EXPECT_EQ(print(g), print(differentiate(zoo_model(name, "batch=2"))));
  }
}

TEST(Differentiate, NothingThatNobodyNeeds) {
  Model m("partly", 2);
  const Value host = m.input({3});
  m.parameter({3}, {}, "unused");
  const Value dead = m.linear(host, {.out = 2}, "dead");  // no way to the loss
  m.activation(dead, "tanh");
  m.mean_squared_error(m.linear(m.activation(host, "tanh"), {.out = 2}, "fc"));
  const Graph g = differentiate(std::move(m).finish());
  for (const Parameter& p : g.parameters) {
    const std::string& name = g.buffer_name(p.buffer);
    EXPECT_EQ(p.gradient != kNone, name == "fc.weight" || name == "fc.bias") << name;
  }
  EXPECT_EQ(count_op(g, Op::linear, Kind::input_grad), 0u);  // what the host gives needs no gradient
  EXPECT_EQ(count_op(g, Op::activation, Kind::input_grad), 0u);
}

TEST(Differentiate, AModelWithoutWeightsIsTheUsersError) {
  Model m("fixed", 2);
  m.mean_squared_error(m.activation(m.input({3}), "tanh"));
  EXPECT_THROW(differentiate(std::move(m).finish()), UserError);
}

// Labels are integers, and targets lie as the data gives them; only images that a layer reads lie channels-last.
TEST(Layout, WhatALossComparesWithIsNoImage) {
  Model m("maps", 2);
  const Value x = m.input({3, 5, 4});
  const Value y = m.conv2d(x, {.out = 6, .kernel = 3, .padding = 1});
  m.mean_squared_error(y);
  const auto layout_of = [](const Graph& g, const char* name) {
    for (BufferId b = 0; b < g.buffers.size(); ++b)
      if (g.buffer_name(b) == name) return to_string(g.buffers[b].layout);
    return std::string();
  };
  const CpuTarget target;
  const Graph regression = choose_layouts(std::move(m).finish(), target);
  EXPECT_EQ(layout_of(regression, "input"), "acdb");
  EXPECT_EQ(layout_of(regression, "targets"), "abcd");
  Model n("volumes", 2);
  n.cross_entropy(n.reshape(n.linear(n.flatten(n.input({6})), {.out = 120}), {2, 2, 3, 4, 5}));
  EXPECT_EQ(layout_of(choose_layouts(std::move(n).finish(), target), "labels"), "abcd");
}

TEST(Layout, ImagesAreReorderedNowhereInAConvnet) {
  for (const char* name : {"cnn", "resnet-18"}) {
    const CpuTarget target;
    const Graph g = choose_layouts(fuse(zoo_model(name, "batch=2")), target);
    EXPECT_EQ(count_op(g, Op::reorder), 0u) << name;
    for (const Task& t : g.tasks)
      if (t.op == Op::conv2d) {
        EXPECT_EQ(g.buffers[g.writes(t)[0]].layout, channels_last_layout());
      }
  }
  const CpuTarget target;  // a flattened image is row-major, as PyTorch's is
  EXPECT_EQ(count_op(choose_layouts(fuse(zoo_model("lenet", "batch=2")), target), Op::reorder), 1u);
}

TEST(Precision, ActivationsAreBf16AndTheRestIsNot) {
  for (const char* name : {"cnn", "transformer", "lstm", "gru"}) {
    const Graph g = differentiate(use_bf16(fuse(zoo_model(name, "batch=2"))));
    for (const Parameter& p : g.parameters) {
      EXPECT_EQ(g.buffers[p.buffer].dtype, DType::f32);
      if (p.gradient == kNone) continue;
      EXPECT_EQ(g.buffers[p.gradient].dtype, DType::f32);
    }
    for (const Task& t : g.tasks) {
      const Buffer& first = g.buffers[g.reads(t)[0]];
      if (t.kind == Kind::forward && (t.op == Op::linear || t.op == Op::conv2d || t.op == Op::attention)) {
        EXPECT_EQ(first.dtype, DType::bf16) << name;
        EXPECT_EQ(g.buffers[g.writes(t)[0]].dtype, DType::bf16) << name;
      }
    }
    EXPECT_EQ(g.buffers[g.losses[0]].dtype, DType::f32);
  }
}

TEST(Updates, OnePerWeightAndOneClipping) {
  const OptimizerSettings adamw{.kind = OptimizerSettings::Kind::adamw, .clip_norm = 1};
  const Graph g = training_graph(zoo_model("cnn", "batch=2"), adamw);
  std::size_t weights = 0, states = 0;
  for (const Parameter& p : g.parameters) {
    weights += g.buffers[p.buffer].role == Role::weight ? 1u : 0u;
    states += g.buffers[p.buffer].role == Role::optimizer_state ? 1u : 0u;
  }
  EXPECT_EQ(count_op(g, Op::adamw, Kind::update), weights);
  EXPECT_EQ(states, 2 * weights);
  EXPECT_EQ(count_op(g, Op::squared_norm, Kind::update), 1u);
  EXPECT_EQ(count_op(g, Op::clip_norm, Kind::update), 1u);
  EXPECT_EQ(count_op(training_graph(zoo_model("cnn", "batch=2")), Op::clip_norm, Kind::update), 0u);
}

// What may run late: weight gradients and updates that nothing but updates waits for. A batch norm's are not such.
TEST(Schedule, DeferrableTasks) {
  const Graph g = training_graph(zoo_model("cnn", "batch=2"));
  const Dependencies deps = dependencies(g);
  const std::vector<char> flag = deferrable_tasks(g, deps);
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    const Task& task = g.tasks[t];
    if (task.kind == Kind::update) {
      EXPECT_TRUE(flag[t]) << g.task_name(t);
    } else if (task.kind == Kind::weight_grad) {
      EXPECT_EQ(flag[t] != 0, task.op != Op::batch_norm) << g.task_name(t);
    } else {
      EXPECT_FALSE(flag[t]) << g.task_name(t);
    }
  }
}

TEST(Schedule, TwoLanesRunEveryTaskOnce) {
  for (const char* name : {"cnn", "resnet-18", "transformer", "lstm"}) {
    const Graph g = training_graph(zoo_model(name, "batch=2"));
    const Profile profile{std::vector<std::int64_t>(g.tasks.size(), 1000), std::vector<double>(g.tasks.size(), 0.6)};
    for (const std::uint64_t tries : {0u, 50u, 400u}) {
      const Plan plan = schedule_jointly(g, profile, {.most_tries = tries});
      EXPECT_NO_THROW(verify(plan));
      ASSERT_EQ(plan.lanes.size(), 2u);
      EXPECT_EQ(plan.lanes[0].tasks.size() + plan.lanes[1].tasks.size(), g.tasks.size());
      EXPECT_GT(plan.lanes[1].tasks.size(), 0u);
      for (const TaskId t : plan.lanes[1].tasks)
        EXPECT_TRUE(g.tasks[t].kind == Kind::weight_grad || g.tasks[t].kind == Kind::update);
    }
  }
}

TEST(Schedule, ForwardPlanRunsForwardTasksOnly) {
  const Graph g = training_graph(zoo_model("transformer", "batch=2,layers=2,dropout=0.1"));
  const Plan plan = place_memory(schedule_forward(g));
  EXPECT_NO_THROW(verify(plan));
  for (const TaskId t : plan.lanes[0].tasks) {
    const Task& task = plan.graph.tasks[t];
    EXPECT_EQ(task.kind, Kind::forward);
    if (task.op == Op::dropout) {
      EXPECT_EQ(plan.graph.attrs_of(task).integer("training"), 0);
    }
  }
}

}  // namespace
}  // namespace overtake
