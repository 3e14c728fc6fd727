#pragma once
// What tests of training over several devices share: small models, random batches, and ranks as threads.

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "comm/local/local_group.h"
#include "overtake/zoo.h"
#include "run_setup.h"

namespace overtake {

inline constexpr std::size_t kSteps = 4;

struct Outcome {
  ParallelOptions chosen;
  std::size_t aside = 0;  // weight gradients on side lanes
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

inline Case small_cnn() { return {"cnn", {}}; }
inline Case small_gpt() {
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

inline RunSetup options_of(const Case& c, const ParallelOptions& parallel) {
  RunSetup o;
  set_optimizer(o.spec, c.optimizer);
  o.spec.schedule = "in-order";
  o.spec.threads = 1;
  o.spec.parts = 2;
  o.spec.seed = 5;
  o.more.place.profiles.clear();
  set_layout(o.spec, parallel);
  return o;
}

inline Graph graph_of(const Case& c) {
  std::map<std::string, double> settings = c.settings;
  settings["batch"] = static_cast<double>(c.micro_batch);
  return build_model(c.model, ModelSettings(settings));
}

// Random samples of the whole batch, of which a process gets its own.
inline HostBatch batch_for(const SampleForm& form, const TrainingRun& training, std::size_t step) {
  HostBatch batch;
  batch.samples = training.own_samples();
  const auto fill = [&](auto& to, std::int64_t each, auto value) {
    for (std::int64_t i = 0; i < training.own_samples() * each; ++i)
      to.push_back(value(static_cast<std::uint32_t>(static_cast<std::uint64_t>(training.first_sample() * each + i + 1) *
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

inline Outcome train(TrainingRun& training, const SampleForm& form, std::size_t steps = kSteps) {
  Outcome out;
  const PlanChoice& choice = training.program().choice();
  out.chosen = {.pipeline = choice.schedule.name, .reduce = choice.reduce};
  out.aside = choice.side.tasks.size();
  if (choice.reduce == "first-k") out.chosen.first_k = choice.first_k;
  for (std::size_t i = 0; i < steps; ++i) out.losses.push_back(training.step(batch_for(form, training, i), 0.05f).loss);
  out.evaluated = training.evaluate(batch_for(form, training, 99)).loss;
  out.hash = training.weights_hash();
  out.tensors = training.tensors();
  return out;
}

inline Outcome in_one_process(const Case& c, const ParallelOptions& parallel) {
  TrainingRun training = run_of(graph_of(c), options_of(c, parallel));
  return train(training, sample_form_of(graph_of(c)));
}

// What each rank says.
template <class Body>
std::vector<Outcome> on_all_ranks(const Graph& graph, const RunSetup& options, const Body& body) {
  auto worlds = make_local_groups(static_cast<int>(options.spec.replicas * options.spec.stages));
  std::vector<Outcome> outcomes(worlds.size());
  std::vector<std::string> errors(worlds.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < worlds.size(); ++r)
    ranks.emplace_back([&, r] {
      try {
        RunSetup o = options;
        o.more.place.groups = std::make_shared<RankGroups>();
        o.more.place.groups->world = std::move(worlds[r]);
        TrainingRun training = run_of(graph, o);
        outcomes[r] = body(training);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  for (std::thread& t : ranks) t.join();
  for (const std::string& e : errors) EXPECT_EQ(e, "");
  for (const Outcome& o : outcomes) {
    EXPECT_EQ(o.chosen.reduce, outcomes[0].chosen.reduce);
    EXPECT_EQ(o.chosen.first_k, outcomes[0].chosen.first_k);
    EXPECT_EQ(o.chosen.pipeline, outcomes[0].chosen.pipeline);
  }
  return outcomes;
}

// What the first rank says.
template <class Body>
Outcome on_ranks(const Case& c, const ParallelOptions& parallel, const Body& body) {
  return on_all_ranks(graph_of(c), options_of(c, parallel), body)[0];
}
inline Outcome on_ranks(const Case& c, const ParallelOptions& parallel) {
  return on_ranks(c, parallel, [&](TrainingRun& s) { return train(s, sample_form_of(graph_of(c))); });
}

inline void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.hash, b.hash);
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 1e-6f * a.losses[i]) << i;
  EXPECT_NEAR(a.evaluated, b.evaluated, 2e-6f * a.evaluated);
  EXPECT_EQ(a.tensors.size(), b.tensors.size());
}

}  // namespace overtake
