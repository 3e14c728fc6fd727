// A batch in parts on a GPU, in bfloat16: the weights that the CPU's float32 gives, up to rounding, and the same ones
// under every schedule.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "cuda/device_array.h"
#include "overtake/zoo.h"
#include "run_setup.h"

namespace overtake {
namespace {

using Weights = std::map<std::string, std::vector<float>>;

Weights weights_of(const TrainingRun& training) {
  Weights all;
  for (const NamedTensor& t : training.tensors()) {
    std::vector<float>& values = all[t.name];
    values.resize(t.bytes.size() / sizeof(float));
    std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
  }
  return all;
}

TrainingRun run_on(const std::string& device, const std::string& model, const std::string& settings,
                   const ParallelOptions& parallel) {
  RunSetup options;
  options.spec.device = device;
  set_layout(options.spec, parallel);
  if (device == "cuda") {
    use_gpu(options);
    if (parallel.devices() > 1) options.spec.virtual_gpus = parallel.devices();
  }
  return run_of(build_model(model, ModelSettings::parse(settings)), options);
}

// What one step changes.
Weights change(const std::string& device, const std::string& model, const std::string& settings,
               const ParallelOptions& parallel) {
  TrainingRun training = run_on(device, model, settings, parallel);
  training.fill_inputs(1);
  const Weights before = weights_of(training);
  training.step(1.0f);
  Weights after = weights_of(training);
  for (auto& [name, values] : after)
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= before.at(name)[i];
  return after;
}

double length_of(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

// Images of three channels: their filters are padded in memory. Norms of few rows make much of bfloat16's rounding.
TEST(MicroBatches, TrainLikeTheCpu) {
  OVERTAKE_NEEDS_GPU();
  const std::tuple<const char*, const char*, double> models[] = {
      {"cnn", "batch=4,channels=3,image=16,width=16", 0.4},
      {"transformer", "batch=2,layers=2,width=64,heads=4,sequence=32,vocabulary=96,dropout=0", 0.06}};
  for (const auto& [model, settings, bound] : models) {
    const ParallelOptions parallel{.micro_batches = 8};
    const Weights want = change("cpu", model, settings, parallel), got = change("cuda", model, settings, parallel);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, values] : want) {
      const std::vector<float>& mine = got.at(name);
      ASSERT_EQ(mine.size(), values.size()) << name;
      std::vector<float> off;
      for (std::size_t i = 0; i < values.size(); ++i) off.push_back(mine[i] - values[i]);
      EXPECT_LE(length_of(off), bound * length_of(values) + 1e-6) << model << ' ' << name;
    }
  }
}

TEST(MicroBatches, EveryScheduleHasTheSameBits) {
  OVERTAKE_NEEDS_GPU();
  const char* const settings = "batch=2,layers=4,width=64,heads=4,sequence=32,vocabulary=96,dropout=0.1";
  std::vector<std::pair<std::string, std::uint64_t>> hashes;
  const auto run = [&](const char* name, const ParallelOptions& parallel) {
    TrainingRun training = run_on("cuda", "transformer", settings, parallel);
    training.fill_inputs(1);
    for (int i = 0; i < 3; ++i) training.step(0.05f);
    hashes.emplace_back(name, training.weights_hash());
  };
  run("one device", {.micro_batches = 4});
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    run(schedule, {.stages = 2, .micro_batches = 4, .pipeline = schedule});
  for (const auto& [name, hash] : hashes) EXPECT_EQ(hash, hashes[0].second) << name;
}

}  // namespace
}  // namespace overtake
