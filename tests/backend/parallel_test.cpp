// Training over several devices: the same weights, to the bit, as on one device that takes the same micro-batches one
// after the other; all devices in one process, and every device a rank of its own.

#include <future>

#include "parallel_case.h"

namespace overtake {
namespace {

TEST(Parallel, MicroBatchesAgreeWithOneBatch) {
  Case c = small_gpt();
  c.settings["dropout"] = 0;  // every micro-batch draws its own
  Case whole = c;
  whole.micro_batch = 8;
  const Outcome one = in_one_process(whole, {}), four = in_one_process(c, {.micro_batches = 4});
  for (std::size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(one.losses[i], four.losses[i], 2e-4f) << i;
}

TEST(Parallel, PipelinesOfEverySchedule) {
  for (const Case& c : {small_cnn(), small_gpt()}) {
    const Outcome one = in_one_process(c, {.micro_batches = 4});
    for (const char* schedule :
         {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "fast-forward", "modulo", "search"}) {
      SCOPED_TRACE(c.model + " " + schedule);
      const ParallelOptions parallel{.stages = 2, .micro_batches = 4, .pipeline = schedule, .search_tries = 2000};
      expect_same(one, in_one_process(c, parallel));
      expect_same(one, on_ranks(c, parallel));
    }
  }
}

TEST(Parallel, ReplicasInEveryOrder) {
  for (const Case& c : {small_cnn(), small_gpt()}) {
    const Outcome one = in_one_process(c, {.micro_batches = 4, .groups = 4});
    for (const char* reduce : {"buckets", "by-layer", "scatter-gather", "first-k"}) {
      SCOPED_TRACE(c.model + " " + reduce);
      const ParallelOptions parallel{.replicas = 4, .reduce = reduce, .first_k = FirstK{2}, .bucket_bytes = 20'000};
      // Running statistics are each replica's own, so only weights are the same where there are any.
      const Outcome here = in_one_process(c, parallel), there = on_ranks(c, parallel);
      EXPECT_EQ(one.hash, here.hash);
      EXPECT_EQ(one.hash, there.hash);
      for (std::size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(one.losses[i], there.losses[i], 1e-6f * one.losses[i]) << i;
    }
  }
}

TEST(Parallel, Hybrids) {
  for (const Case& c : {small_cnn(), small_gpt()}) {
    const Outcome one = in_one_process(c, {.micro_batches = 4, .groups = 2});
    for (const char* reduce : {"buckets", "by-layer", "scatter-gather", "first-k"}) {
      SCOPED_TRACE(c.model + " " + reduce);
      const ParallelOptions parallel{
          .replicas = 2, .stages = 2, .micro_batches = 2, .pipeline = "zb-h1", .reduce = reduce, .first_k = FirstK{1}};
      EXPECT_EQ(one.hash, in_one_process(c, parallel).hash);
      EXPECT_EQ(one.hash, on_ranks(c, parallel).hash);
    }
  }
}

// Weight gradients beside the rest of their device's step, in whatever order they end.
TEST(Parallel, SideLanes) {
  for (const Case& c : {small_cnn(), small_gpt()}) {
    const Outcome stages = in_one_process(c, {.micro_batches = 4}),
                  replicas = in_one_process(c, {.micro_batches = 4, .groups = 4}),
                  both = in_one_process(c, {.micro_batches = 4, .groups = 2});
    const auto expect_aside = [&](const Outcome& one, const ParallelOptions& parallel) {
      SCOPED_TRACE(c.model + " " + parallel.pipeline + " " + parallel.reduce);
      const Outcome aside = on_ranks(c, parallel);
      EXPECT_GT(aside.aside, 0u);
      EXPECT_EQ(aside.hash, one.hash);
    };
    for (const char* pipeline : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "search"})
      expect_aside(stages,
                   {.stages = 2, .micro_batches = 4, .pipeline = pipeline, .search_tries = 500, .lanes = "ooo"});
    for (const char* reduce : {"buckets", "by-layer", "scatter-gather", "first-k"}) {
      expect_aside(replicas, {.replicas = 4, .reduce = reduce, .bucket_bytes = 20'000, .lanes = "ooo"});
      expect_aside(both, {.replicas = 2, .stages = 2, .micro_batches = 2, .reduce = reduce, .lanes = "ooo"});
    }
  }
}

// Where a link is slow, a search may leave a device without anything to do.
TEST(Parallel, ADeviceMayHaveNothingToDo) {
  Case c = small_gpt();
  c.optimizer.clip_norm = 0.3;
  const Outcome one = in_one_process(c, {.micro_batches = 4, .groups = 2});
  const ParallelOptions parallel{.replicas = 2, .stages = 2, .micro_batches = 2, .pipeline = "gpipe"};
  const Outcome idle = on_ranks(c, parallel, [&](TrainingRun& training) {
    Program program = training.program();
    PipelineSchedule& schedule = program.choices[program.chosen].schedule;
    std::vector<ChunkTask> forwards, gradients;
    for (const std::vector<ChunkTask>& order : schedule.orders) {
      std::vector<ChunkTask> of_device;
      for (const ChunkTask& task : order) (task.kind == Kind::forward ? forwards : of_device).push_back(task);
      gradients.insert(gradients.begin(), of_device.begin(), of_device.end());
    }
    forwards.insert(forwards.end(), gradients.begin(), gradients.end());
    schedule.orders = {forwards, {}};
    for (std::uint32_t& device : schedule.layout.device_of[0]) device = 0;
    training.adopt(training.prepare(std::move(program)));
    return train(training, sample_form_of(graph_of(c)));
  });
  EXPECT_EQ(idle.hash, one.hash);
}

// Trying plans out leaves nothing behind: neither weights, nor states, nor transfers that the training would meet.
TEST(Parallel, ChoosesWithoutATrace) {
  for (const Case& c : {small_cnn(), small_gpt()}) {
    for (const char* reduce : {"first-k", "auto"}) {
      SCOPED_TRACE(c.model + " " + reduce);
      const Outcome chosen = on_ranks(c, {.replicas = 2, .reduce = reduce});
      EXPECT_NE(chosen.chosen.reduce, "auto");
      EXPECT_EQ(chosen.chosen.first_k.has_value(), chosen.chosen.reduce == "first-k");
      ParallelOptions given{.replicas = 2, .reduce = chosen.chosen.reduce, .first_k = chosen.chosen.first_k};
      expect_same(chosen, on_ranks(c, given));
    }
    const ParallelOptions hybrid{
        .replicas = 2, .stages = 2, .micro_batches = 2, .pipeline = "search", .search_tries = 2000, .reduce = "auto"};
    EXPECT_EQ(on_ranks(c, hybrid).hash, in_one_process(c, {.micro_batches = 4, .groups = 2}).hash);
  }
}

TEST(Parallel, TakesUpWhatAnotherLayoutLeft) {
  Case c = small_gpt();
  c.settings["tied"] = 0;  // tied gradients are put together by each replica, which a pipeline is only one of
  const SampleForm form = sample_form_of(graph_of(c));
  const Outcome undisturbed = in_one_process(c, {.micro_batches = 4});
  const ParallelOptions pipeline{.stages = 2, .micro_batches = 4};
  const Outcome half = on_ranks(c, pipeline, [&](TrainingRun& s) { return train(s, form, 2); });
  const auto go_on = [&](TrainingRun& s) {
    s.restore(s.is_first() ? half.tensors : std::vector<NamedTensor>{}, 2, "half");
    Outcome out;
    for (std::size_t i = 2; i < kSteps; ++i) out.losses.push_back(s.step(batch_for(form, s, i), 0.05f).loss);
    out.hash = s.weights_hash();
    return out;
  };
  EXPECT_EQ(undisturbed.hash, on_ranks(c, {.replicas = 4}, go_on).hash);
  TrainingRun alone = run_of(graph_of(c), options_of(c, {.micro_batches = 4}));
  EXPECT_EQ(undisturbed.hash, go_on(alone).hash);
}

// The losses of a step go round beside the next one.
TEST(Parallel, StepsUnderWayHaveTheLossesOfTheirOwn) {
  const Case c = small_gpt();
  const SampleForm form = sample_form_of(graph_of(c));
  const ParallelOptions parallel{.replicas = 2, .stages = 2, .reduce = "by-layer"};
  const Outcome one_by_one = on_ranks(c, parallel);
  const Outcome under_way = on_ranks(c, parallel, [&](TrainingRun& s) {
    EXPECT_EQ(s.most_under_way(), 2u);
    Outcome out;
    for (std::size_t i = 0; i < kSteps; ++i) {
      s.start_step(batch_for(form, s, i), 0.05f);
      if (i > 0) out.losses.push_back(s.finish_step().loss);
      if (i == 1 && !s.is_first()) s.ask_to_stop();
    }
    const StepResult last = s.finish_step();
    out.losses.push_back(last.loss);
    EXPECT_TRUE(last.is_asked_to_stop);
    out.hash = s.weights_hash();
    return out;
  });
  EXPECT_EQ(one_by_one.hash, under_way.hash);
  EXPECT_EQ(one_by_one.losses, under_way.losses);
}

// Only the first rank reads what all replicas have, but for that it needs what the others delayed.
TEST(Parallel, WeightsAreReadTogether) {
  const Case c = small_gpt();
  const SampleForm form = sample_form_of(graph_of(c));
  for (const char* reduce : {"buckets", "by-layer", "scatter-gather", "first-k"}) {
    SCOPED_TRACE(reduce);
    const ParallelOptions parallel{.replicas = 2, .reduce = reduce, .first_k = FirstK{1}};
    const auto hash = [&](TrainingRun& s) {
      Outcome out;
      s.step(batch_for(form, s, 0), 0.05f);
      out.hash = s.weights_hash();
      return out;
    };
    TrainingRun alone = run_of(graph_of(c), options_of(c, {.micro_batches = 2, .groups = 2}));
    EXPECT_EQ(on_ranks(c, parallel, hash).hash, hash(alone).hash);
  }
}

// Sums go on between steps; one that fails there ends the next step, which would wait for it for ever.
TEST(Parallel, ALossBetweenStepsIsNoticed) {
  const Case c = small_cnn();
  std::promise<void> has_stepped;
  std::string text;
  on_ranks(c, {.replicas = 2, .reduce = "by-layer"}, [&](TrainingRun& s) {
    if (!s.is_first()) {
      has_stepped.get_future().wait();
      return Outcome{};
    }
    Executor& executor = s.executor();
    executor.start(0, {});
    executor.finish();
    has_stepped.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // in which the other one leaves
    try {
      executor.start(0, {.step = 1});
      executor.finish();
    } catch (const CommError& error) {
      text = error.what();
    }
    return Outcome{};
  });
  EXPECT_NE(text.find("rank 1: it left the group"), std::string::npos) << text;
}

}  // namespace
}  // namespace overtake
