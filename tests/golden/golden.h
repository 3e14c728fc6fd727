#pragma once
// What the tests against PyTorch share. golden_numbers.py computes the same numbers on the other side.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "passes/keep.h"
#include "random_plan.h"
#include "run_setup.h"
#include "test_device.h"
#include "train/weights.h"

namespace overtake::golden {

using nlohmann::json;
using Tensors = std::map<std::string, std::vector<float>>;  // by PyTorch's names, in its order of elements

inline std::filesystem::path folder() { return OVERTAKE_GOLDEN_DIR; }

inline json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return json::parse(in);
}

// Pseudo-random words that depend on the text `key` alone.
class Words {
 public:
  explicit Words(const std::string& key) {
    for (const char byte : key) state_ = (state_ ^ static_cast<unsigned char>(byte)) * 16777619u;  // FNV-1a
  }
  std::uint32_t operator[](std::size_t i) const {
    std::uint32_t x = state_ + static_cast<std::uint32_t>(i + 1) * 0x9E3779B9u;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;  // MurmurHash3's finalizer
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return x ^ (x >> 16);
  }
  // In [-1, 1).
  double uniform(std::size_t i) const { return ((*this)[i] >> 8) * 0x1p-23 - 1.0; }

 private:
  std::uint32_t state_ = 2166136261u;
};

inline std::vector<float> uniform(const std::string& key, std::size_t count, double half_width, double middle = 0) {
  const Words words(key);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(half_width * words.uniform(i) + middle);
  return values;
}

inline std::size_t elements_of(const std::vector<std::int64_t>& dims) {
  std::size_t count = 1;
  for (const std::int64_t d : dims) count *= static_cast<std::size_t>(d);
  return count;
}

// Row-major. Matrices by their fan-in; middle and half-width of norm weights and biases are in `initial`.
inline std::vector<float> initial_weight(const std::string& name, const std::vector<std::int64_t>& dims,
                                         const json& initial) {
  const std::size_t count = elements_of(dims);
  if (dims.size() > 1)
    return uniform(name, count, std::sqrt(3.0 / static_cast<double>(count / static_cast<std::size_t>(dims[0]))));
  const json& range = initial.at(name.ends_with(".weight") ? "gain" : "bias");
  return uniform(name, count, range[1], range[0]);
}

// For RunSetup::initial: all weights of a forward graph.
inline std::vector<NamedTensor> initial_weights(const Graph& forward, const json& initial) {
  std::vector<NamedTensor> all;
  for (const Parameter& p : forward.parameters) {
    if (forward.buffers[p.buffer].role != Role::weight) continue;
    const std::string& name = forward.buffer_name(p.buffer);
    const std::vector<std::int64_t> dims = stored_dims(forward, p);
    const std::vector<float> values = initial_weight(name, dims, initial);
    all.push_back(owning_tensor(name, StoredType::f32, dims, std::as_bytes(std::span(values))));
  }
  return all;
}

inline HostBatch batch_of(std::size_t step, const SampleForm& form, std::int64_t samples) {
  HostBatch batch{.samples = samples};
  const auto total = [&](std::int64_t per_sample) { return static_cast<std::size_t>(samples * per_sample); };
  const auto ids = [&](const char* name, std::size_t count, std::int64_t bound) {
    const Words words(fmt::format("{}.{}", name, step));
    std::vector<std::int32_t> result;
    for (std::size_t i = 0; i < count; ++i)
      result.push_back(static_cast<std::int32_t>(words[i] % static_cast<std::uint32_t>(bound)));
    return result;
  };
  if (form.input == InputForm::tokens)
    batch.tokens = ids("tokens", total(input_elements(form)), form.vocabulary);
  else
    batch.values = uniform(fmt::format("input.{}", step), total(input_elements(form)), 1.5);  // [B, H, W, C]
  if (form.label == LabelForm::targets)
    batch.targets = uniform(fmt::format("targets.{}", step), total(label_elements(form)), 1.0);
  else
    batch.labels = ids("labels", total(label_elements(form)), form.classes);
  return batch;
}

inline OptimizerSettings optimizer_of(const json& o) {
  OptimizerSettings s;
  s.kind = o.at("kind") == "sgd" ? OptimizerSettings::Kind::sgd : OptimizerSettings::Kind::adamw;
  s.weight_decay = o.at("weight_decay");
  s.clip_norm = o.at("clip_norm");
  if (s.kind == OptimizerSettings::Kind::sgd) {
    s.momentum = o.at("momentum");
    s.nesterov = o.at("nesterov");
  } else {
    s.beta1 = o.at("beta1"), s.beta2 = o.at("beta2"), s.eps = o.at("eps");
  }
  return s;
}

inline std::vector<float> read(TrainingRun& training, BufferId buffer) {
  const Buffer& b = training.graph().buffers[buffer];
  std::vector<float> values(static_cast<std::size_t>(b.shape.elements()));
  if (b.dtype == DType::f32) {
    training.executor().read_plain(buffer, std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::vector<bf16> rounded(values.size());
  training.executor().read_plain(buffer, std::as_writable_bytes(std::span(rounded)));
  std::ranges::transform(rounded, values.begin(), [](bf16 x) { return to_float(x); });
  return values;
}

// A buffer of the parameter's shape (itself, or its gradient) in the form files have it.
inline std::vector<float> read_stored(TrainingRun& training, const Parameter& p, BufferId buffer) {
  std::vector<float> values = read(training, buffer);
  const auto bytes = std::as_bytes(std::span(values));
  const std::vector<std::byte> stored = to_stored(training.graph(), p, {bytes.begin(), bytes.end()});
  values.resize(stored.size() / sizeof(float));
  std::memcpy(values.data(), stored.data(), stored.size());
  return values;
}

// By the names of the weights.
inline Tensors gradients_of(TrainingRun& training) {
  Tensors all;
  for (const Parameter& p : training.graph().parameters) {
    if (p.gradient == kNone) continue;
    const std::vector<float> values = read_stored(training, p, p.gradient);
    for (const StoredTensor& t : stored_tensors(training.graph(), p)) {
      all[t.name] = values;
      if (t.rows == 0) continue;
      const auto row = std::ssize(values) / training.graph().buffers[p.buffer].shape[0];
      const auto first = values.begin() + t.first_row * row;
      all[t.name] = std::vector<float>(first, first + t.rows * row);
    }
  }
  return all;
}

// Running statistics.
inline Tensors states_of(TrainingRun& training) {
  Tensors all;
  for (const Parameter& p : training.graph().parameters)
    if (training.graph().buffers[p.buffer].role == Role::state)
      all[training.graph().buffer_name(p.buffer)] = read_stored(training, p, p.buffer);
  return all;
}

inline double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

inline double global_norm(const Tensors& tensors) {
  double sum = 0;
  for (const auto& [name, values] : tensors) sum += std::pow(norm_of(values), 2);
  return std::sqrt(sum);
}

// The dot product with the fixed vector j of this name, whose elements are uniform in [-1, 1).
inline double sketch_of(const std::string& name, const std::vector<float>& values, std::size_t j) {
  const Words vector(fmt::format("sketch.{}.{}", j, name));
  double dot = 0;
  for (std::size_t i = 0; i < values.size(); ++i) dot += static_cast<double>(values[i]) * vector.uniform(i);
  return dot;
}

// A sketch is [norm, dot products with fixed vectors]. Differences may be `tolerance` of the norm plus `floor`.
inline void expect_sketched(const Tensors& actual, const json& sketches, double floor, double tolerance) {
  for (const auto& [name, sketch] : sketches.items()) {
    const auto found = actual.find(name);
    ASSERT_NE(found, actual.end()) << name;
    const double norm = sketch[0], allowed = tolerance * (norm + floor);
    EXPECT_NEAR(norm_of(found->second), norm, allowed) << name << ", norm";
    for (std::size_t j = 0; j + 1 < sketch.size(); ++j)
      EXPECT_NEAR(sketch_of(name, found->second, j), sketch[j + 1].get<double>(), allowed)
          << name << ", dot product " << j;
  }
}

// |actual - sketched| / |sketched| of all tensors together, estimated: the mean square of a difference's dot product
// with a vector that is uniform in [-1, 1) is a third of its squared norm.
inline double sketched_error(const Tensors& actual, const json& sketches) {
  double squared_error = 0, squared_norm = 0;
  for (const auto& [name, sketch] : sketches.items()) {
    const auto products = static_cast<double>(sketch.size() - 1);
    for (std::size_t j = 0; j + 1 < sketch.size(); ++j)
      squared_error += 3 * std::pow(sketch_of(name, actual.at(name), j) - sketch[j + 1].get<double>(), 2) / products;
    squared_norm += std::pow(sketch[0].get<double>(), 2);
  }
  return std::sqrt(squared_error / squared_norm);
}

// Gradients that are small beside all of them are compared relative to this part of the norm of all; golden_numbers.py
// says why.
constexpr double kSmall = 1e-3;

// How far from PyTorch's float64 a run in bfloat16 may be: each loss, and the gradient of the first step as a whole.
// A bfloat16 has 8 bits, so every rounding is off by up to 2^-9 = 0.2 % of the number. Activations and gradients are
// rounded once per layer, and roundings that know nothing of each other add up as a random walk: 0.2 % times the root
// of about 100 roundings is 2 %. That is what losses get, which are means over all of the last layer; of gradients,
// deep sums of terms that cancel, five times as much (measured on a CPU: at most 1.3 % and 7 %). A wrong gradient is
// off by 100 % and more. Where a ReLU or a max pool sits at its edge, rounding puts it on the other side and the
// gradient takes another way: networks in which much hangs on few of these (measured: up to 38 %) need only stay within
// 45 degrees of the direction, which is 70 %.
constexpr double kBf16Loss = 0.02;
inline double bf16_gradient_bound(const std::string& network) {
  constexpr std::string_view kOnTheEdge[] = {"cnn_sgd", "cnn_nesterov", "googlenet", "inception-v3", "inception-v4"};
  return std::ranges::find(kOnTheEdge, network) == std::end(kOnTheEdge) ? 0.1 : 0.7;
}

// Two lanes in some legal order, another for every network.
inline Plan random_order(const std::string& network, const Graph& graph) {
  std::seed_seq seed(network.begin(), network.end());
  std::mt19937 random(seed);
  return random_plan(graph, 2, random);
}

// One step on the batch with this number.
inline StepResult run_step(TrainingRun& training, const json& facts, std::size_t step) {
  return training.step(batch_of(step, sample_form_of(training.graph()), training.batch()),
                       facts.at("optimizer").at("learning_rate"));
}

}  // namespace overtake::golden
