// Clipping over several devices: one norm over the gradients of all, and the same weights, to the bit, however they are
// divided.

#include <cmath>

#include "overtake/model.h"
#include "parallel_case.h"

namespace overtake {
namespace {

constexpr const char* kReductions[] = {"buckets", "by-layer", "scatter-gather", "first-k"};

// Small enough that every step is clipped.
std::vector<Case> clipped_cases() {
  std::vector<Case> cases = {small_cnn(), small_gpt()};
  for (Case& c : cases) c.optimizer.clip_norm = 0.3;
  cases[1].optimizer.eps = 0.01;  // else AdamW makes the same of a gradient and a part of it
  return cases;
}

TEST(ParallelClipping, MicroBatchesAgreeWithOneBatch) {
  Case c = clipped_cases()[1];
  c.settings["dropout"] = 0;  // every micro-batch draws its own
  Case whole = c, free = c;
  whole.micro_batch = 8;
  free.optimizer.clip_norm = 0;
  const Outcome one = in_one_process(whole, {}), four = in_one_process(c, {.micro_batches = 4}),
                unclipped = in_one_process(free, {.micro_batches = 4});
  for (std::size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(one.losses[i], four.losses[i], 2e-4f) << i;
  EXPECT_GT(std::abs(unclipped.losses.back() - four.losses.back()), 2e-3f);
}

TEST(ParallelClipping, Pipelines) {
  for (const Case& c : clipped_cases()) {
    const Outcome one = in_one_process(c, {.micro_batches = 4});
    for (const char* schedule : {"1f1b", "interleaved", "zb-h1", "zb-v"}) {
      SCOPED_TRACE(c.model + " " + schedule);
      const ParallelOptions parallel{.stages = 2, .micro_batches = 4, .pipeline = schedule};
      expect_same(one, in_one_process(c, parallel));
      expect_same(one, on_ranks(c, parallel));
    }
  }
}

TEST(ParallelClipping, ReplicasInEveryOrder) {
  for (const Case& c : clipped_cases()) {
    const Outcome one = in_one_process(c, {.micro_batches = 4, .groups = 4});
    Case free = c;
    free.optimizer.clip_norm = 0;
    EXPECT_NE(one.hash, in_one_process(free, {.micro_batches = 4, .groups = 4}).hash);
    for (const char* reduce : kReductions) {
      SCOPED_TRACE(c.model + " " + reduce);
      const ParallelOptions parallel{.replicas = 4, .reduce = reduce, .first_k = FirstK{2}, .bucket_bytes = 20'000};
      EXPECT_EQ(one.hash, in_one_process(c, parallel).hash);
      EXPECT_EQ(one.hash, on_ranks(c, parallel).hash);
    }
  }
}

TEST(ParallelClipping, Hybrids) {
  for (const Case& c : clipped_cases()) {
    const Outcome one = in_one_process(c, {.micro_batches = 4, .groups = 2});
    for (const char* reduce : kReductions) {
      SCOPED_TRACE(c.model + " " + reduce);
      const ParallelOptions parallel{
          .replicas = 2, .stages = 2, .micro_batches = 2, .pipeline = "zb-h1", .reduce = reduce, .first_k = FirstK{1}};
      EXPECT_EQ(one.hash, in_one_process(c, parallel).hash);
      EXPECT_EQ(one.hash, on_ranks(c, parallel).hash);
      ParallelOptions aside = parallel;
      aside.lanes = "ooo";
      EXPECT_EQ(one.hash, on_ranks(c, aside).hash);
    }
  }
}

// Both directions of such a pipeline have every weight: it counts once all the same.
TEST(ParallelClipping, TwoWayPipelines) {
  const Case c = clipped_cases()[0];
  const ParallelOptions parallel{.stages = 2, .micro_batches = 4, .pipeline = "dualpipe"};
  const Outcome one = in_one_process(c, {.micro_batches = 4}), here = in_one_process(c, parallel);
  EXPECT_EQ(here.hash, on_ranks(c, parallel).hash);
  for (std::size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(one.losses[i], here.losses[i], 2e-4f) << i;
}

// d sqrt(x) at 0 is infinite: the stage that has it and the one that has none both change nothing and say so.
TEST(ParallelClipping, AGradientThatIsNotFiniteChangesNothing) {
  Model m("op", 2);
  const Value x = m.linear(m.input({3}), {.out = 3}, "fc");
  const Value root = m.activation(m.parameter({2, 3}, {}, "zero"), "sqrt");
  m.mean_squared_error(m.add(x, root));
  const Graph graph = std::move(m).finish();
  Case c;
  c.optimizer = {.weight_decay = 0.1, .clip_norm = 1};
  const auto body = [](TrainingRun& s) {
    Outcome out;
    s.fill_inputs(1);
    const std::uint64_t before = s.weights_hash();
    out.losses.push_back(s.step(0.1f).loss);
    EXPECT_EQ(s.weights_hash(), before);
    return out;
  };
  for (const ParallelOptions& parallel :
       {ParallelOptions{.stages = 2, .micro_batches = 2}, ParallelOptions{.replicas = 2, .reduce = "by-layer"}}) {
    for (const Outcome& out : on_all_ranks(graph, options_of(c, parallel), body))
      EXPECT_TRUE(std::isnan(out.losses[0]));
    TrainingRun alone = run_of(graph, options_of(c, parallel));
    EXPECT_TRUE(std::isnan(body(alone).losses[0]));
  }
}

}  // namespace
}  // namespace overtake
