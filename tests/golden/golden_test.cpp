// Training steps against PyTorch, in float64. make_golden.py made the files and says what is in them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "models/zoo.h"
#include "passes/keep.h"
#include "train/session.h"

namespace overtake {
namespace {

using nlohmann::json;
using Tensors = std::map<std::string, std::vector<double>>;

constexpr double kTolerance = 1e-4;

// Pseudo-random words by the text `key` alone; make_golden.py has the same lines.
std::vector<std::uint32_t> numbers(const std::string& key, std::size_t count) {
  std::uint32_t state = 2166136261u;
  for (const char byte : key) state = (state ^ static_cast<unsigned char>(byte)) * 16777619u;  // FNV-1a
  std::vector<std::uint32_t> words(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t x = state + static_cast<std::uint32_t>(i + 1) * 0x9E3779B9u;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;  // MurmurHash3's finalizer
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    words[i] = x ^ (x >> 16);
  }
  return words;
}

// In [-1, 1).
std::vector<double> uniform(const std::string& key, std::size_t count) {
  std::vector<double> values;
  for (const std::uint32_t word : numbers(key, count)) values.push_back(std::ldexp(word >> 8, -23) - 1.0);
  return values;
}

std::size_t elements_of(const std::vector<std::int64_t>& dims) {
  std::size_t count = 1;
  for (const std::int64_t d : dims) count *= static_cast<std::size_t>(d);
  return count;
}

// Row-major. Matrices by their fan-in; middle and half-width of norm weights and biases are in `initial`.
std::vector<float> initial_weight(const std::string& name, const std::vector<std::int64_t>& dims, const json& initial) {
  const std::vector<double> u = uniform(name, elements_of(dims));
  double middle = 0, half_width = 0;
  if (dims.size() > 1) {
    half_width = std::sqrt(3.0 / static_cast<double>(u.size() / static_cast<std::size_t>(dims[0])));
  } else {
    const json& range = initial.at(name.ends_with(".weight") ? "gain" : "bias");
    middle = range[0], half_width = range[1];
  }
  std::vector<float> values;
  for (const double x : u) values.push_back(static_cast<float>(half_width * x + middle));
  return values;
}

HostBatch batch_of(std::size_t step, const SampleForm& form, std::int64_t samples) {
  HostBatch batch{.samples = samples};
  const auto total = [&](std::int64_t per_sample) { return static_cast<std::size_t>(samples * per_sample); };
  const auto ids = [&](const char* name, std::size_t count, std::int64_t bound) {
    std::vector<std::int32_t> result;
    for (const std::uint32_t word : numbers(fmt::format("{}.{}", name, step), count))
      result.push_back(static_cast<std::int32_t>(word % static_cast<std::uint32_t>(bound)));
    return result;
  };
  if (form.input == InputForm::tokens)
    batch.tokens = ids("tokens", total(input_elements(form)), form.vocabulary);
  else
    for (const double x : uniform(fmt::format("input.{}", step), total(input_elements(form))))
      batch.values.push_back(static_cast<float>(1.5 * x));  // [B, H, W, C]
  batch.labels = ids("labels", total(label_elements(form)), form.classes);
  return batch;
}

OptimizerSettings optimizer_of(const json& o) {
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

std::vector<double> read(Session& session, BufferId buffer) {
  std::vector<float> values(static_cast<std::size_t>(session.graph().buffers[buffer].shape.elements()));
  session.executor().read_plain(buffer, std::as_writable_bytes(std::span(values)));
  return {values.begin(), values.end()};
}

void write_initial_weights(Session& session, const json& initial) {
  for (const Parameter& p : session.graph().parameters) {
    const Buffer& b = session.graph().buffers[p.buffer];
    if (b.role != Role::weight) continue;
    const std::vector<float> values = initial_weight(session.graph().buffer_name(p.buffer), stored_dims(b), initial);
    session.executor().write_plain(p.buffer, std::as_bytes(std::span(values)));
  }
}

// By the names of the weights.
Tensors gradients_of(Session& session) {
  Tensors all;
  for (const Parameter& p : session.graph().parameters)
    if (p.gradient != kNone) all[session.graph().buffer_name(p.buffer)] = read(session, p.gradient);
  return all;
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x * x;
  return std::sqrt(sum);
}

double global_norm(const Tensors& tensors) {
  std::vector<double> norms;
  for (const auto& [name, values] : tensors) norms.push_back(norm_of(values));
  return norm_of(norms);
}

struct Golden {
  json facts;
  TensorFile file;  // empty where there are sketches

  explicit Golden(const std::string& name) {
    const std::string path = std::string(OVERTAKE_GOLDEN_DIR) + "/" + name;
    std::ifstream in(path + ".json");
    facts = json::parse(in);
    if (!facts.contains("sketches")) file = read_safetensors(path + ".safetensors");
  }

  // The tensors whose stored name starts with `prefix`, by the rest of the name.
  Tensors tensors(const std::string& prefix) const {
    Tensors all;
    for (const NamedTensor& t : file.tensors) {
      if (!t.name.starts_with(prefix)) continue;
      std::vector<float> values(t.bytes.size() / sizeof(float));
      std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
      all[t.name.substr(prefix.size())].assign(values.begin(), values.end());
    }
    return all;
  }
};

// Every element, relative to the tensor's largest.
void expect_close(const Tensors& actual, const Tensors& expected, const std::string& when) {
  ASSERT_EQ(actual.size(), expected.size()) << when;
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.contains(name)) << when << " " << name;
    const std::vector<double>& ours = actual.at(name);
    ASSERT_EQ(ours.size(), values.size()) << when << " " << name;
    double largest = 0, error = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      // Not std::max alone: a NaN of ours must not be lost.
      const double difference = std::abs(ours[i] - values[i]);
      if (!(difference <= error)) error = difference;
    }
    EXPECT_LE(error / largest, kTolerance) << when << " " << name;
  }
}

// The norm, and dot products with fixed vectors, relative to the norm.
void expect_sketched(const Tensors& actual, const json& sketches, const std::string& when) {
  ASSERT_EQ(actual.size(), sketches.size()) << when;
  for (const auto& [name, sketch] : sketches.items()) {
    ASSERT_TRUE(actual.contains(name)) << when << " " << name;
    const std::vector<double>& ours = actual.at(name);
    const double norm = sketch.at("norm");
    EXPECT_NEAR(norm_of(ours) / norm, 1.0, kTolerance) << when << " " << name;
    for (std::size_t j = 0; j < sketch.at("dots").size(); ++j) {
      const std::vector<double> vector = uniform(fmt::format("sketch.{}.{}", j, name), ours.size());
      double dot = 0;
      for (std::size_t i = 0; i < ours.size(); ++i) dot += ours[i] * vector[i];
      EXPECT_NEAR(dot / norm, sketch.at("dots")[j].get<double>() / norm, kTolerance) << when << " " << name;
    }
  }
}

void expect_gradients(const Tensors& actual, const Golden& golden, const std::string& when) {
  if (golden.facts.contains("sketches"))
    expect_sketched(actual, golden.facts.at("sketches").at(when), when);
  else
    expect_close(actual, golden.tensors(when + "/"), when);
}

Tensors states_of(Session& session) {
  Tensors all;
  for (const Parameter& p : session.graph().parameters)
    if (session.graph().buffers[p.buffer].role == Role::state)
      all[session.graph().buffer_name(p.buffer)] = read(session, p.buffer);
  return all;
}

// What the program gives the updates as the global norm and the factor of the gradients.
void expect_clipping(Session& session, double norm, double max_norm) {
  const Graph& g = session.graph();
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    if (g.buffer_name(b) != "clip.factor") continue;
    const std::vector<double> factor = read(session, b);
    EXPECT_NEAR(factor[0] / norm, 1.0, kTolerance);
    EXPECT_NEAR(factor[1], std::min(1.0, max_norm / (norm + 1e-6)), kTolerance);
    return;
  }
  FAIL() << "no clip.factor";
}

// Trains as the case says, comparing on the way; returns the hash of the weights at the end.
std::uint64_t train_and_compare(const Golden& golden, ScheduleChoice schedule) {
  const json& facts = golden.facts;
  const json& optimizer = facts.at("optimizer");
  SessionOptions options;
  options.optimizer = optimizer_of(optimizer);
  options.schedule = schedule;
  options.threads = 2;
  options.extra_passes = {keep_gradients(),
                          keep_buffers([](const std::string& name) { return name == "clip.factor"; })};
  const ModelSettings settings(facts.at("settings").get<std::map<std::string, double>>());
  Session session(build_model(facts.at("model"), settings), options);
  write_initial_weights(session, facts.at("initial"));
  const std::size_t steps = facts.at("steps");
  const double max_norm = optimizer.at("clip_norm");
  for (std::size_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(fmt::format("step {}", step + 1));
    const StepResult result =
        session.step(batch_of(step, sample_form_of(session.graph()), session.batch()), optimizer.at("learning_rate"));
    EXPECT_NEAR(result.loss / facts.at("losses")[step].get<double>(), 1.0, kTolerance);
    const Tensors gradients = gradients_of(session);
    const double norm = facts.at("norms")[step];
    EXPECT_NEAR(global_norm(gradients) / norm, 1.0, kTolerance);
    if (max_norm > 0) expect_clipping(session, norm, max_norm);
    if (step == 0) expect_gradients(gradients, golden, "first");
    if (step + 1 == steps) expect_gradients(gradients, golden, "last");
  }
  if (!facts.contains("sketches")) expect_close(states_of(session), golden.tensors("state/"), "state");
  return session.weights_hash();
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, TrainsAsPyTorchUnderEverySchedule) {
  const Golden golden(GetParam());
  std::uint64_t in_order = 0, out_of_order = 0;
  {
    SCOPED_TRACE("in order");
    in_order = train_and_compare(golden, ScheduleChoice::in_order);
  }
  {
    SCOPED_TRACE("out of order");
    out_of_order = train_and_compare(golden, ScheduleChoice::ooo);
  }
  EXPECT_EQ(in_order, out_of_order);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest,
                         testing::Values("cnn_sgd", "cnn_nesterov", "transformer_adamw", "lstm_sgd", "gru_sgd",
                                         "resnet18_sgd"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace overtake
