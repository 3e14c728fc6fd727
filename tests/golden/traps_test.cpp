// Small files that an import can easily train as something else than what they are, against PyTorch in float64: trained
// for three steps on one batch, or refused. make_traps_golden.py made them and says what is in them.

#include "base/error.h"
#include "golden/golden.h"
#include "models/onnx/import.h"

namespace overtake::golden {
namespace {

// The wrong model is off by a percent and more. Updates are small beside the weights that they change, which round.
constexpr double kTrapTolerance = 1e-3, kRounding = 0x1p-24;

std::filesystem::path traps_folder() { return golden::folder() / "traps"; }

std::vector<std::string> trap_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(traps_folder()))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

Network network_of(const std::string& name, const json& facts) {
  return import_onnx(traps_folder() / (name + ".onnx"),
                     {.settings = ModelSettings({{"batch", facts.at("batch")}}), .loss = facts.at("loss")});
}

TrainingRun run_of_trap(Network network, const json& facts) {
  RunSetup options;
  set_optimizer(options.spec, optimizer_of(facts.at("optimizer")));
  options.spec.schedule = "in-order";
  use_test_device(options, Precision::f32, 2);
  options.more.initial = std::move(network.values);
  return run_of(std::move(network.graph), std::move(options));
}

// As they are exported.
Tensors weights_of(const TrainingRun& training) {
  CheckpointState state;
  state.step = training.steps_done();
  state.tensors = training.tensors();
  Tensors all;
  for (const NamedTensor& t : exported_weights(state)) {
    if (t.type != StoredType::f32) continue;
    std::vector<float>& values = all[t.name];
    values.resize(t.bytes.size() / sizeof(float));
    std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
  }
  return all;
}

void expect_trained_as_in_pytorch(const std::string& name, const json& facts) {
  TrainingRun training = run_of_trap(network_of(name, facts), facts);
  const Tensors start = weights_of(training);
  const std::vector<double> losses = facts.at("losses");
  for (const double loss : losses) EXPECT_NEAR(run_step(training, facts, 0).loss / loss, 1.0, kTrapTolerance);
  Tensors updates;
  for (const auto& [weight, end] : weights_of(training)) {
    const std::vector<float>& before = start.at(weight);
    std::vector<float>& update = updates[weight];
    std::ranges::transform(end, before, std::back_inserter(update), std::minus());
    const bool moves = facts.at("updates").contains(weight);
    EXPECT_TRUE(moves || norm_of(update) == 0) << weight << " is not trained in PyTorch";
  }
  for (const auto& [weight, sketch] : facts.at("updates").items()) {
    ASSERT_TRUE(updates.contains(weight)) << weight;
    const double rounding = kRounding * norm_of(start.at(weight)) / kTrapTolerance;
    expect_sketched(updates, {{weight, sketch}}, kSmall * global_norm(updates) + rounding, kTrapTolerance);
  }
}

void expect_refused(const std::string& name, const json& facts) {
  try {
    const Network network = network_of(name, facts);
    FAIL() << "is trained";
  } catch (const UserError& error) {
    for (const std::string text : facts.at("refused"))
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos);
  }
}

class Traps : public testing::TestWithParam<std::string> {};

TEST_P(Traps, IsTrainedAsInPyTorchOrRefused) {
  const json facts = read_json(traps_folder() / (GetParam() + ".json"));
  if (facts.contains("refused"))
    expect_refused(GetParam(), facts);
  else
    expect_trained_as_in_pytorch(GetParam(), facts);
}

INSTANTIATE_TEST_SUITE_P(Files, Traps, testing::ValuesIn(trap_names()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace overtake::golden
