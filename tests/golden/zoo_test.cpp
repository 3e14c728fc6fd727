// The first training step of the zoo's networks against PyTorch, in float64. make_zoo_golden.py made the files and says
// what is in them.

#include "overtake/zoo.h"

#include <algorithm>

#include "golden/golden.h"

namespace overtake::golden {
namespace {

constexpr double kZooTolerance = 1e-3;

// The file's, and no dropout.
ModelSettings settings_of(const json& facts) {
  ModelSettings settings(facts.at("settings").get<std::map<std::string, double>>());
  for (const ZooEntry& entry : zoo())
    if (entry.name == facts.at("model") && entry.defaults.contains("dropout")) settings.set("dropout", 0);
  return settings;
}

struct FirstStep {
  double loss;
  Tensors gradients;
};

FirstStep run_first_step(const json& facts, Precision precision) {
  Graph forward = build_model(facts.at("model"), settings_of(facts));
  RunSetup options;
  set_optimizer(options.spec, {.kind = OptimizerSettings::Kind::sgd, .momentum = 0});
  options.more.compile.own_order = [&](const Graph& g) { return random_order(facts.at("model"), g); };
  use_test_device(options, precision, 2);
  options.more.initial = initial_weights(forward, facts.at("initial"));
  options.more.compile.extra_passes = {keep_gradients()};
  TrainingRun training = run_of(std::move(forward), std::move(options));
  const StepResult result = training.step(batch_of(0, sample_form_of(training.graph()), training.batch()), 0.0f);
  return {result.loss, gradients_of(training)};
}

class ZooGolden : public testing::TestWithParam<std::string> {};

TEST_P(ZooGolden, FirstStepIsPyTorchs) {
  const json facts = read_json(folder() / "zoo" / (GetParam() + ".json"));
  const auto [loss, gradients] = run_first_step(facts, Precision::f32);
  EXPECT_NEAR(loss / facts.at("loss").get<double>(), 1.0, kZooTolerance);
  const double norm = facts.at("norm");
  EXPECT_EQ(gradients.size(), facts.at("tensors"));
  EXPECT_NEAR(global_norm(gradients) / norm, 1.0, kZooTolerance);
  expect_sketched(gradients, facts.at("gradients"), kSmall * norm, kZooTolerance);
}

TEST_P(ZooGolden, FirstStepInBfloat16) {
  OVERTAKE_NEEDS_BF16();
  const json facts = read_json(folder() / "zoo" / (GetParam() + ".json"));
  const auto [loss, gradients] = run_first_step(facts, Precision::bf16);
  EXPECT_NEAR(loss / facts.at("loss").get<double>(), 1.0, kBf16Loss);
  EXPECT_LE(sketched_error(gradients, facts.at("gradients")), bf16_gradient_bound(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Networks, ZooGolden,
                         testing::Values("ffnn", "resnet-32-cifar", "vgg-16", "resnet-18", "resnet-34", "resnet-50",
                                         "resnet-101", "resnet-152", "densenet-121", "densenet-169",
                                         "mobilenet-v3-large", "inception-v3", "inception-v4", "vit-b-16", "bert-12",
                                         "bert-24", "bert-36", "bert-48", "gpt2", "gpt3-medium", "lstm"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace overtake::golden
