// The CUDA executor itself: steps under way, traces, what goes wrong.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "cuda/device_array.h"
#include "exec/backend.h"
#include "graph/place.h"
#include "overtake/model.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"
#include "plan/in_order.h"
#include "plan/memory.h"
#include "run_setup.h"
#include "train/initial_values.h"

namespace overtake {
namespace {

RunSetup on_gpu(Precision precision = Precision::bf16) {
  RunSetup options;
  use_gpu(options, precision);
  options.spec.schedule = "in-order";
  set_optimizer(options.spec, {.momentum = 0.9});
  return options;
}

Graph model(const std::string& name, const std::string& settings) {
  return build_model(name, ModelSettings::parse(settings));
}

TEST(CudaExecutor, StepsUnderWayGiveTheBitsOfStepsOneByOne) {
  OVERTAKE_NEEDS_GPU();
  TrainingRun one = run_of(model("cnn", "batch=8"), on_gpu());
  TrainingRun many = run_of(model("cnn", "batch=8"), on_gpu());
  ASSERT_EQ(many.most_under_way(), 2u);
  std::vector<float> a, b;
  const auto finish = [&](bool has_one_before) {
    const StepResult step = many.finish_step();
    b.push_back(step.loss);
    EXPECT_EQ(step.idle_ns.has_value(), has_one_before);
    EXPECT_TRUE(!step.idle_ns || (*step.idle_ns >= 0 && *step.idle_ns < 1'000'000'000)) << *step.idle_ns;
  };
  for (std::uint64_t i = 0; i < 6; ++i) {
    one.fill_inputs(i);
    a.push_back(one.step(0.05f).loss);
  }
  for (std::uint64_t i = 0; i < 6; ++i) {
    many.fill_inputs(i);
    many.start_step(0.05f);
    if (i > 0) finish(i > 1);
  }
  finish(true);
  EXPECT_EQ(a, b);
  EXPECT_EQ(one.weights_hash(), many.weights_hash());
}

TEST(CudaExecutor, WithoutAGraphTheBitsAreTheSame) {
  OVERTAKE_NEEDS_GPU();
  RunSetup plain = on_gpu();
  plain.spec.graph = false;
  TrainingRun graph =
      run_of(model("transformer", "batch=2,layers=2,width=32,heads=4,sequence=16,dropout=0.1"), on_gpu());
  TrainingRun launches =
      run_of(model("transformer", "batch=2,layers=2,width=32,heads=4,sequence=16,dropout=0.1"), plain);
  for (TrainingRun* s : {&graph, &launches}) {
    s->fill_inputs(1);
    for (int i = 0; i < 5; ++i) s->step(0.05f);
  }
  EXPECT_EQ(graph.weights_hash(), launches.weights_hash());
}

// Concats in place and concats by copies: the same numbers but for cuDNN's choice of kernels, and less memory.
TEST(CudaExecutor, ConcatsInPlaceTrainAsConcatsByCopies) {
  OVERTAKE_NEEDS_GPU();
  for (const char* name : {"densenet-121", "inception-v3"}) {
    SCOPED_TRACE(name);
    const std::string settings =
        std::string(name) == "densenet-121" ? "batch=8,image=64,classes=10" : "batch=8,image=107,classes=10";
    RunSetup copying = on_gpu(Precision::f32);
    copying.spec.skip_passes = {"share_concats"};
    TrainingRun in_place = run_of(model(name, settings), on_gpu(Precision::f32));
    TrainingRun by_copies = run_of(model(name, settings), copying);
    std::size_t parts = 0, copied = 0;
    const Graph& g = in_place.graph();
    for (const Task& t : g.tasks) {
      if (t.op != Op::concat) continue;
      for (const ConcatPart& part : concat_parts(g, t)) {
        if (part.buffer == kNone) continue;
        ++parts;
        copied += !lies_in_place(g, t, part);
      }
    }
    std::printf("  %s: %zu of %zu parts of concats are copied\n", name, copied, parts);
    EXPECT_LT(copied, parts);
    // Differences of the first step's order of sums grow with the steps, where norms see few numbers.
    for (const float bound : {1e-4f, 1e-2f, 5e-2f}) {
      in_place.fill_inputs(1);
      by_copies.fill_inputs(1);
      const float want = by_copies.step(0.001f).loss;
      EXPECT_NEAR(in_place.step(0.001f).loss, want, bound * want);
    }
    const float want = by_copies.evaluate().loss;
    EXPECT_NEAR(in_place.evaluate().loss, want, 0.1f * want);
  }
}

TEST(CudaExecutor, ATracedStepHasASpanForEveryTask) {
  OVERTAKE_NEEDS_GPU();
  for (const bool is_first : {true, false}) {
    TrainingRun training = run_of(model("lenet", "batch=4"), on_gpu());
    training.fill_inputs(1);
    if (!is_first) training.step(0.01f);
    const Trace trace = training.step_traced(0.01f).trace;
    std::set<TaskId> tasks;
    std::int64_t before = 0;
    for (const Span& s : trace.spans) {
      tasks.insert(s.task);
      EXPECT_LE(s.begin_ns, s.end_ns);
      EXPECT_LE(before, s.begin_ns + 1000) << "one lane runs one task at a time";
      before = s.end_ns;
    }
    EXPECT_EQ(tasks.size(), training.graph().tasks.size());
    EXPECT_GT(trace.step_ns, 0);
  }
}

TEST(CudaExecutor, BadLabelsAreTheUsersError) {
  OVERTAKE_NEEDS_GPU();
  TrainingRun training = run_of(model("lenet", "batch=4"), on_gpu());
  for (const int bad_step : {0, 3}) {
    training.fill_inputs(1);
    for (int i = 0; i < bad_step; ++i) training.step(0.01f);
    training.fill_inputs(1);
    for (BufferId b = 0; b < training.graph().buffers.size(); ++b)
      if (training.graph().buffer_name(b) == "labels") {
        const std::int32_t labels[] = {1, 99, 2, 3};
        training.executor().write_plain(b, std::as_bytes(std::span(labels)));
      }
    try {
      training.step(0.01f);
      FAIL() << "no error";
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("row 1"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("10 classes"), std::string::npos) << e.what();
    }
  }
}

TEST(CudaExecutor, TooLargeAStepSaysWhatWouldFit) {
  OVERTAKE_NEEDS_GPU();
  try {
    TrainingRun training = run_of(model("gpt2", "batch=3000,dropout=0"), on_gpu());
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("would fit"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("`batch "), std::string::npos) << e.what();
  }
}

TEST(CudaExecutor, AbsentGpuIsTheUsersError) {
  OVERTAKE_NEEDS_GPU();
  EXPECT_THROW(open_backend("cuda:63", {}), UserError);
}

// Runs a plan in which one buffer lies far outside the arena.
[[noreturn]] void run_faulty_plan() {
  const auto backend = open_backend("cuda", {.tune = false, .tuning_file = "", .note = {}});
  PassRunner runner;
  TrainingPassOptions pipeline;
  pipeline.bf16 = true;
  Plan plan = place_memory(
      schedule_in_order(build_training_graph(model("lenet", "batch=4"), backend->target(), pipeline, runner)));
  for (BufferId b = 0; b < plan.graph.buffers.size(); ++b)
    if (plan.graph.buffer_name(b) == "conv2.weight.grad") plan.offsets[b] = std::uint64_t{1} << 45;
  try {
    const auto executor = backend->make_executor({plan});
    fill_random_inputs(*executor, 1);
    executor->run(0, {});
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    std::_Exit(7);
  }
  std::_Exit(0);
}

TEST(CudaExecutorDeathTest, AKernelThatFailsIsNamed) {
  OVERTAKE_NEEDS_GPU();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_faulty_plan(), testing::ExitedWithCode(7), "task conv2.weight_grad");
}

TEST(CudaExecutor, FindsTheTaskThatMakesAnInfinity) {
  OVERTAKE_NEEDS_GPU();
  Model m("overflow", 2);
  Value x = m.input({4});
  x = m.linear(x, {.out = 4}, "first");
  m.mean_squared_error(m.activation(m.activation(x, "exp", "large"), "exp", "larger"));
  TrainingRun training = run_of(std::move(m).finish(), on_gpu(Precision::f32));
  std::vector<float> values(8, 1e4f);
  const Graph& g = training.graph();
  HostBatch batch;
  batch.values = values;
  batch.targets = values;
  batch.samples = 2;
  EXPECT_FALSE(std::isfinite(training.step(batch, 0.1f).loss));
  const std::string culprit = training.find_non_finite(batch, 0);
  EXPECT_TRUE(culprit.find("large") != std::string::npos) << culprit << " of " << g.model;
}

}  // namespace
}  // namespace overtake
