// Training steps against PyTorch, in float64. make_golden.py made the files and says what is in them.

#include <cstring>

#include "golden/golden.h"
#include "overtake/zoo.h"

namespace overtake::golden {
namespace {

constexpr double kTolerance = 1e-4;

struct Golden {
  json facts;
  TensorFile file;  // empty where there are sketches

  explicit Golden(const std::string& name) {
    facts = read_json(folder() / (name + ".json"));
    if (!facts.contains("sketches")) file = read_safetensors(folder() / (name + ".safetensors"));
  }

  // The tensors whose stored name starts with `prefix`, by the rest of the name.
  Tensors tensors(const std::string& prefix) const {
    Tensors all;
    for (const NamedTensor& t : file.tensors) {
      if (!t.name.starts_with(prefix)) continue;
      std::vector<float>& values = all[t.name.substr(prefix.size())];
      values.resize(t.bytes.size() / sizeof(float));
      std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
    }
    return all;
  }
};

// |actual - expected| / |expected| of all tensors together.
double relative_error(const Tensors& actual, const Tensors& expected) {
  Tensors difference = expected;
  for (auto& [name, values] : difference)
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= actual.at(name).at(i);
  return global_norm(difference) / global_norm(expected);
}

// Every element, relative to the tensor's largest.
void expect_close(const Tensors& actual, const Tensors& expected, const std::string& when) {
  ASSERT_EQ(actual.size(), expected.size()) << when;
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.contains(name)) << when << " " << name;
    const std::vector<float>& ours = actual.at(name);
    ASSERT_EQ(ours.size(), values.size()) << when << " " << name;
    double largest = 0, error = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, static_cast<double>(std::abs(values[i])));
      // Not std::max alone: a NaN of ours must not be lost.
      const double difference = std::abs(static_cast<double>(ours[i]) - values[i]);
      if (!(difference <= error)) error = difference;
    }
    EXPECT_LE(error / largest, kTolerance) << when << " " << name;
  }
}

void expect_gradients(const Tensors& actual, const Golden& golden, const std::string& when) {
  SCOPED_TRACE(when);
  if (!golden.facts.contains("sketches")) return expect_close(actual, golden.tensors(when + "/"), when);
  const json& sketches = golden.facts.at("sketches").at(when);
  EXPECT_EQ(actual.size(), sketches.size());
  expect_sketched(actual, sketches, 0, kTolerance);
}

double gradient_error(const Tensors& actual, const Golden& golden) {
  if (!golden.facts.contains("sketches")) return relative_error(actual, golden.tensors("first/"));
  return sketched_error(actual, golden.facts.at("sketches").at("first"));
}

// What the program gives the updates as the global norm and the factor of the gradients.
void expect_clipping(TrainingRun& training, double norm, double max_norm) {
  const Graph& g = training.graph();
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    if (g.buffer_name(b) != "clip.factor") continue;
    const std::vector<float> factor = read(training, b);
    EXPECT_NEAR(factor[0] / norm, 1.0, kTolerance);
    EXPECT_NEAR(factor[1], std::min(1.0, max_norm / (norm + 1e-6)), kTolerance);
    return;
  }
  FAIL() << "no clip.factor";
}

// In a random order where no schedule is given.
TrainingRun run_for(const json& facts, std::optional<std::string> schedule, Precision precision) {
  RunSetup options;
  set_optimizer(options.spec, optimizer_of(facts.at("optimizer")));
  if (schedule)
    options.spec.schedule = *schedule;
  else
    options.more.compile.own_order = [&](const Graph& g) { return random_order(facts.at("model"), g); };
  options.spec.plan_seconds = 0.3;
  use_test_device(options, precision, 2);
  options.more.compile.extra_passes = {keep_gradients(),
                                       keep_buffers([](const std::string& name) { return name == "clip.factor"; })};
  const ModelSettings settings(facts.at("settings").get<std::map<std::string, double>>());
  Graph forward = build_model(facts.at("model"), settings);
  options.more.initial = initial_weights(forward, facts.at("initial"));
  return run_of(std::move(forward), std::move(options));
}

// Trains as the case says, comparing on the way; returns the hash of the weights at the end.
std::uint64_t train_and_compare(const Golden& golden, const std::string& schedule) {
  const json& facts = golden.facts;
  TrainingRun training = run_for(facts, schedule, Precision::f32);
  const std::size_t steps = facts.at("steps");
  const double max_norm = facts.at("optimizer").at("clip_norm");
  for (std::size_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(fmt::format("step {}", step + 1));
    const StepResult result = run_step(training, facts, step);
    EXPECT_NEAR(result.loss / facts.at("losses")[step].get<double>(), 1.0, kTolerance);
    const Tensors gradients = gradients_of(training);
    const double norm = facts.at("norms")[step];
    EXPECT_NEAR(global_norm(gradients) / norm, 1.0, kTolerance);
    if (max_norm > 0) expect_clipping(training, norm, max_norm);
    if (step == 0) expect_gradients(gradients, golden, "first");
    if (step + 1 == steps) expect_gradients(gradients, golden, "last");
  }
  if (!facts.contains("sketches")) expect_close(states_of(training), golden.tensors("state/"), "state");
  return training.weights_hash();
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, TrainsAsPyTorchUnderEverySchedule) {
  const Golden golden(GetParam());
  std::uint64_t in_order = 0, out_of_order = 0;
  {
    SCOPED_TRACE("in order");
    in_order = train_and_compare(golden, "in-order");
  }
  {
    SCOPED_TRACE("out of order");
    out_of_order = train_and_compare(golden, "ooo");
  }
  EXPECT_EQ(in_order, out_of_order);
}

TEST_P(GoldenTest, TrainsInBfloat16) {
  OVERTAKE_NEEDS_BF16();
  const Golden golden(GetParam());
  TrainingRun training = run_for(golden.facts, {}, Precision::bf16);
  const std::vector<double> losses = golden.facts.at("losses");
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const StepResult result = run_step(training, golden.facts, step);
    EXPECT_NEAR(result.loss / losses[step], 1.0, kBf16Loss) << "step " << step + 1;
    if (step > 0) continue;
    EXPECT_LE(gradient_error(gradients_of(training), golden), bf16_gradient_bound(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest,
                         testing::Values("cnn_sgd", "cnn_nesterov", "transformer_adamw", "lstm_sgd", "gru_sgd",
                                         "resnet18_sgd"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace overtake::golden
