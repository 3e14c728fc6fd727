// Runs that go on with another program between two steps: the weights are those of a run that never changed.

#include <gtest/gtest.h>

#include "caught_error.h"
#include "parallel_case.h"
#include "random_plan.h"
#include "train/planner.h"

namespace overtake {
namespace {

constexpr std::size_t kStepsOfEach = 2;

// Of the same model and batch: the samples of a piece follow from the layout.
Case in_pieces(Case c, const ParallelOptions& parallel) {
  constexpr std::int64_t kBatch = 8;
  c.micro_batch = kBatch / (parallel.replicas * parallel.micro_batches);
  return c;
}

Program planned(const Case& c, const ParallelOptions& parallel, const Workplace& place,
                const CompileOptions& compile = {}) {
  const Case mine = in_pieces(c, parallel);
  return plan_run(graph_of(mine), options_of(mine, parallel).spec, place, compile).program;
}

// Two steps with each layout, on the ranks that `run` has.
Outcome through(TrainingRun& run, const Case& c, const std::vector<ParallelOptions>& layouts, const SampleForm& form) {
  Outcome out;
  std::size_t step = 0;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (i > 0) run.adopt(run.prepare(planned(c, layouts[i], run.workplace())));
    for (std::size_t j = 0; j < kStepsOfEach; ++j)
      out.losses.push_back(run.step(batch_for(form, run, step++), 0.05f).loss);
  }
  EXPECT_EQ(run.steps_done(), layouts.size() * kStepsOfEach);
  out.evaluated = run.evaluate(batch_for(form, run, 99)).loss;
  out.hash = run.weights_hash();
  out.tensors = run.tensors();
  return out;
}

Case untied_gpt() {
  Case c = small_gpt();
  c.settings["tied"] = 0;  // tied gradients are put together by each replica, which a pipeline is only one of
  return c;
}

Outcome in_one_process_through(const Case& c, const std::vector<ParallelOptions>& layouts) {
  const Case first = in_pieces(c, layouts[0]);
  TrainingRun run = run_of(graph_of(first), options_of(first, layouts[0]));
  return through(run, c, layouts, sample_form_of(graph_of(first)));
}

Outcome on_ranks_through(const Case& c, const std::vector<ParallelOptions>& layouts) {
  const Case first = in_pieces(c, layouts[0]);
  const SampleForm form = sample_form_of(graph_of(first));
  return on_ranks(first, layouts[0], [&](TrainingRun& run) { return through(run, c, layouts, form); });
}

TEST(Adopt, OtherOrdersOnOneDevice) {
  const Case c = small_cnn();
  const SampleForm form = sample_form_of(graph_of(in_pieces(c, {})));
  const Outcome undisturbed = in_one_process_through(c, {{}, {}, {}});
  const Case mine = in_pieces(c, {});
  TrainingRun run = run_of(graph_of(mine), options_of(mine, {}));
  std::mt19937 random(3);
  Outcome out;
  for (std::size_t step = 0; step < 3 * kStepsOfEach; ++step) {
    if (step > 0 && step % kStepsOfEach == 0) {
      const CompileOptions own{.extra_passes = {},
                               .own_order = [&](const Graph& g) { return random_plan(g, 2, random); }};
      TrainingRun::Prepared prepared = run.prepare(planned(c, {}, run.workplace(), own));
      EXPECT_TRUE(prepared->shares_memory()) << "everything lies where it did";
      run.adopt(std::move(prepared));
    }
    out.losses.push_back(run.step(batch_for(form, run, step), 0.05f).loss);
  }
  EXPECT_EQ(run.weights_hash(), undisturbed.hash);
  EXPECT_EQ(out.losses, undisturbed.losses);
}

// While another program is made ready, steps go on, and the weights that it finds are those of the last of them.
TEST(Adopt, StepsGoOnWhileAProgramIsPrepared) {
  const Case c = untied_gpt(), mine = in_pieces(c, {.micro_batches = 4});
  const SampleForm form = sample_form_of(graph_of(mine));
  const auto run_through = [&](bool adopts) {
    TrainingRun run = run_of(graph_of(mine), options_of(mine, {.micro_batches = 4}));
    run.step(batch_for(form, run, 0), 0.05f);
    TrainingRun::Prepared prepared;
    if (adopts)
      prepared = run.prepare(planned(c, {.stages = 2, .micro_batches = 4, .pipeline = "zb-h1"}, run.workplace()));
    run.step(batch_for(form, run, 1), 0.05f);
    if (adopts) run.adopt(std::move(prepared));
    run.step(batch_for(form, run, 2), 0.05f);
    return run.weights_hash();
  };
  EXPECT_EQ(run_through(true), run_through(false));
}

TEST(Adopt, OtherStagesAndOrdersOfMicroBatches) {
  const Case c = untied_gpt();
  const std::vector<ParallelOptions> layouts = {{.stages = 2, .micro_batches = 4, .pipeline = "gpipe"},
                                                {.stages = 2, .micro_batches = 4, .pipeline = "zb-h1"},
                                                {.stages = 2, .micro_batches = 4, .pipeline = "interleaved"}};
  const Outcome alone = in_one_process_through(c, {{.micro_batches = 4}, {.micro_batches = 4}, {.micro_batches = 4}});
  expect_same(alone, on_ranks_through(c, layouts));
  expect_same(alone, in_one_process_through(c, layouts));
}

// What replicas delay into the next step is done before the program goes.
TEST(Adopt, FromStagesToReplicasAndBack) {
  const Case c = untied_gpt();
  const ParallelOptions pipeline{.stages = 2, .micro_batches = 4, .groups = 2},
      replicas{.replicas = 2, .micro_batches = 2, .reduce = "by-layer"},
      late{.replicas = 2, .micro_batches = 2, .reduce = "scatter-gather"};
  const ParallelOptions one{.micro_batches = 4, .groups = 2};
  const Outcome alone = in_one_process_through(c, {one, one, one, one});
  expect_same(alone, on_ranks_through(c, {pipeline, replicas, pipeline, late}));
  expect_same(alone, on_ranks_through(c, {late, pipeline, replicas, pipeline}));
}

TEST(Adopt, SideLanesAndOneLane) {
  const Case c = untied_gpt();
  ParallelOptions one{.stages = 2, .micro_batches = 4, .lanes = "in-order"}, aside = one;
  aside.lanes = "ooo";
  const Outcome alone = in_one_process_through(c, {{.micro_batches = 4}, {.micro_batches = 4}, {.micro_batches = 4}});
  expect_same(alone, on_ranks_through(c, {one, aside, one}));
  expect_same(alone, on_ranks_through(c, {aside, one, aside}));
}

// The one that is adopted second finds the weights of then, whatever memory it was prepared to share.
TEST(Adopt, OneOfTwoPreparedPrograms) {
  const Case c = small_cnn(), mine = in_pieces(c, {});
  const SampleForm form = sample_form_of(graph_of(mine));
  const auto hash = [&](bool adopts) {
    TrainingRun run = run_of(graph_of(mine), options_of(mine, {}));
    TrainingRun::Prepared same, other;
    if (adopts) {
      same = run.prepare(planned(c, {}, run.workplace()));
      other = run.prepare(planned(c, {.micro_batches = 2}, run.workplace()));
      EXPECT_TRUE(same->shares_memory());
    }
    run.step(batch_for(form, run, 0), 0.05f);
    if (adopts) run.adopt(std::move(other));
    if (adopts) run.adopt(std::move(same));
    run.step(batch_for(form, run, 1), 0.05f);
    return run.weights_hash();
  };
  EXPECT_EQ(hash(true), hash(false));
}

TEST(Adopt, StepsThatAreNotFinishedAreAnError) {
  const Case c = small_cnn(), mine = in_pieces(c, {});
  TrainingRun run = run_of(graph_of(mine), options_of(mine, {}));
  TrainingRun::Prepared prepared = run.prepare(planned(c, {}, run.workplace()));
  run.start_step(0.05f);
  EXPECT_EQ(caught([&] { run.adopt(std::move(prepared)); }).remedy(), "finish them first");
  run.finish_step();
}

}  // namespace
}  // namespace overtake
