// Training over several devices: the same weights, to the bit, as on one device that takes the same micro-batches one
// after the other; all devices in one process, and every device a rank of its own.

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <thread>

#include "comm/local/local_group.h"
#include "models/zoo.h"
#include "train/session.h"

namespace overtake {
namespace {

constexpr std::size_t kSteps = 4;

struct Outcome {
  std::vector<float> losses;
  float evaluated = 0;
  std::uint64_t hash = 0;
  std::vector<NamedTensor> tensors;
};

struct Case {
  std::string model;
  std::map<std::string, double> settings;
  std::int64_t micro_batch = 2;
  OptimizerSettings optimizer = {};
};

Case small_cnn() { return {"cnn", {}}; }
Case small_gpt() {
  return {"gpt2",
          {{"layers", 2},
           {"width", 32},
           {"heads", 4},
           {"sequence", 8},
           {"positions", 8},
           {"vocabulary", 64},
           {"dropout", 0.1}},
          2,
          {.kind = OptimizerSettings::Kind::adamw}};
}

SessionOptions options_of(const Case& c, const ParallelOptions& parallel) {
  SessionOptions o;
  o.optimizer = c.optimizer;
  o.schedule = ScheduleChoice::in_order;
  o.backend.threads = 1;
  o.parts = 2;
  o.seed = 5;
  o.profiles.clear();
  o.parallel = parallel;
  return o;
}

Graph graph_of(const Case& c) {
  std::map<std::string, double> settings = c.settings;
  settings["batch"] = static_cast<double>(c.micro_batch);
  return build_model(c.model, ModelSettings(settings));
}

// Random samples of the whole batch, of which a process gets its own.
HostBatch batch_for(const SampleForm& form, const Session& session, std::size_t step) {
  HostBatch batch;
  batch.samples = session.own_samples();
  const auto fill = [&](auto& to, std::int64_t each, auto value) {
    for (std::int64_t i = 0; i < session.own_samples() * each; ++i)
      to.push_back(value(static_cast<std::uint32_t>(static_cast<std::uint64_t>(session.first_sample() * each + i + 1) *
                                                    (step + 7) * 2654435761u)));
  };
  if (form.input == InputForm::tokens)
    fill(batch.tokens, input_elements(form), [&](std::uint32_t x) {
      return static_cast<std::int32_t>((x >> 8) % static_cast<std::uint32_t>(form.vocabulary));
    });
  else
    fill(batch.values, input_elements(form),
         [](std::uint32_t x) { return static_cast<float>(x >> 8) / (1 << 23) - 1; });
  fill(batch.labels, label_elements(form),
       [&](std::uint32_t x) { return static_cast<std::int32_t>((x >> 8) % static_cast<std::uint32_t>(form.classes)); });
  return batch;
}

Outcome train(Session& session, const SampleForm& form, std::size_t steps = kSteps) {
  Outcome out;
  for (std::size_t i = 0; i < steps; ++i) out.losses.push_back(session.step(batch_for(form, session, i), 0.05f).loss);
  out.evaluated = session.evaluate(batch_for(form, session, 99)).loss;
  out.hash = session.weights_hash();
  out.tensors = session.tensors();
  return out;
}

Outcome in_one_process(const Case& c, const ParallelOptions& parallel) {
  Session session(graph_of(c), options_of(c, parallel));
  return train(session, sample_form_of(graph_of(c)));
}

// What the first rank says.
template <class Body>
Outcome on_ranks(const Case& c, const ParallelOptions& parallel, const Body& body) {
  auto worlds = make_local_groups(static_cast<int>(parallel.devices()));
  std::vector<Outcome> outcomes(worlds.size());
  std::vector<std::string> errors(worlds.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < worlds.size(); ++r)
    ranks.emplace_back([&, r] {
      try {
        SessionOptions o = options_of(c, parallel);
        o.backend.groups = std::make_shared<RankGroups>();
        o.backend.groups->world = std::move(worlds[r]);
        Session session(graph_of(c), o);
        outcomes[r] = body(session);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  for (std::thread& t : ranks) t.join();
  for (const std::string& e : errors) EXPECT_EQ(e, "");
  return outcomes[0];
}
Outcome on_ranks(const Case& c, const ParallelOptions& parallel) {
  return on_ranks(c, parallel, [&](Session& s) { return train(s, sample_form_of(graph_of(c))); });
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.hash, b.hash);
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 1e-6f * a.losses[i]) << i;
  EXPECT_NEAR(a.evaluated, b.evaluated, 2e-6f * a.evaluated);
  EXPECT_EQ(a.tensors.size(), b.tensors.size());
}

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
      const ParallelOptions parallel{.stages = 2, .micro_batches = 4, .pipeline = schedule, .search_seconds = 0.2};
      expect_same(one, in_one_process(c, parallel));
      expect_same(one, on_ranks(c, parallel));
    }
  }
}

TEST(Parallel, ReplicasInEveryOrder) {
  for (const Case& c : {small_cnn(), small_gpt()}) {
    const Outcome one = in_one_process(c, {.micro_batches = 4});
    for (const char* reduce : {"buckets", "by-layer", "scatter-gather", "first-k"}) {
      SCOPED_TRACE(c.model + " " + reduce);
      const ParallelOptions parallel{.replicas = 4, .reduce = reduce, .first_k = 2, .bucket_bytes = 20'000};
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
          .replicas = 2, .stages = 2, .micro_batches = 2, .pipeline = "zb-h1", .reduce = reduce, .first_k = 1};
      EXPECT_EQ(one.hash, in_one_process(c, parallel).hash);
      EXPECT_EQ(one.hash, on_ranks(c, parallel).hash);
    }
  }
}

TEST(Parallel, TakesUpWhatAnotherLayoutLeft) {
  const Case c = small_gpt();
  const SampleForm form = sample_form_of(graph_of(c));
  const Outcome undisturbed = in_one_process(c, {.micro_batches = 4});
  const ParallelOptions pipeline{.stages = 2, .micro_batches = 4};
  const Outcome half = on_ranks(c, pipeline, [&](Session& s) { return train(s, form, 2); });
  const auto go_on = [&](Session& s) {
    s.restore(s.is_first() ? half.tensors : std::vector<NamedTensor>{}, 2, "half");
    Outcome out;
    for (std::size_t i = 2; i < kSteps; ++i) out.losses.push_back(s.step(batch_for(form, s, i), 0.05f).loss);
    out.hash = s.weights_hash();
    return out;
  };
  EXPECT_EQ(undisturbed.hash, on_ranks(c, {.replicas = 4}, go_on).hash);
  Session alone(graph_of(c), options_of(c, {.micro_batches = 4}));
  EXPECT_EQ(undisturbed.hash, go_on(alone).hash);
}

// The losses of a step go round beside the next one.
TEST(Parallel, StepsUnderWayHaveTheLossesOfTheirOwn) {
  const Case c = small_gpt();
  const SampleForm form = sample_form_of(graph_of(c));
  const ParallelOptions parallel{.replicas = 2, .stages = 2, .reduce = "by-layer"};
  const Outcome one_by_one = on_ranks(c, parallel);
  const Outcome under_way = on_ranks(c, parallel, [&](Session& s) {
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
    const ParallelOptions parallel{.replicas = 2, .reduce = reduce, .first_k = 1};
    const auto hash = [&](Session& s) {
      Outcome out;
      s.step(batch_for(form, s, 0), 0.05f);
      out.hash = s.weights_hash();
      return out;
    };
    Session alone(graph_of(c), options_of(c, {.micro_batches = 2}));
    EXPECT_EQ(on_ranks(c, parallel, hash).hash, hash(alone).hash);
  }
}

// Sums go on between steps; one that fails there ends the next step, which would wait for it for ever.
TEST(Parallel, ALossBetweenStepsIsNoticed) {
  const Case c = small_cnn();
  std::promise<void> has_stepped;
  std::string text;
  on_ranks(c, {.replicas = 2, .reduce = "by-layer"}, [&](Session& s) {
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
