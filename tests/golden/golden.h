#pragma once
// What the tests against PyTorch share. golden_numbers.py computes the same numbers on the other side.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "passes/keep.h"
#include "test_device.h"
#include "train/session.h"
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

// For SessionOptions::initial: all weights of a forward graph.
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

inline std::vector<float> read(Session& session, BufferId buffer) {
  std::vector<float> values(static_cast<std::size_t>(session.graph().buffers[buffer].shape.elements()));
  session.executor().read_plain(buffer, std::as_writable_bytes(std::span(values)));
  return values;
}

// A buffer of the parameter's shape (itself, or its gradient) in the form files have it.
inline std::vector<float> read_stored(Session& session, const Parameter& p, BufferId buffer) {
  std::vector<float> values = read(session, buffer);
  const auto bytes = std::as_bytes(std::span(values));
  const std::vector<std::byte> stored = to_stored(session.graph(), p, {bytes.begin(), bytes.end()});
  values.resize(stored.size() / sizeof(float));
  std::memcpy(values.data(), stored.data(), stored.size());
  return values;
}

// By the names of the weights.
inline Tensors gradients_of(Session& session) {
  Tensors all;
  for (const Parameter& p : session.graph().parameters) {
    if (p.gradient == kNone) continue;
    const std::vector<float> values = read_stored(session, p, p.gradient);
    for (const StoredTensor& t : stored_tensors(session.graph(), p)) {
      all[t.name] = values;
      if (t.rows == 0) continue;
      const auto row = std::ssize(values) / session.graph().buffers[p.buffer].shape[0];
      const auto first = values.begin() + t.first_row * row;
      all[t.name] = std::vector<float>(first, first + t.rows * row);
    }
  }
  return all;
}

// Running statistics.
inline Tensors states_of(Session& session) {
  Tensors all;
  for (const Parameter& p : session.graph().parameters)
    if (session.graph().buffers[p.buffer].role == Role::state)
      all[session.graph().buffer_name(p.buffer)] = read_stored(session, p, p.buffer);
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

// A sketch is [norm, dot products with fixed vectors]. Differences may be `tolerance` of the norm plus `floor`.
inline void expect_sketched(const Tensors& actual, const json& sketches, double floor, double tolerance) {
  for (const auto& [name, sketch] : sketches.items()) {
    const auto found = actual.find(name);
    ASSERT_NE(found, actual.end()) << name;
    const std::vector<float>& ours = found->second;
    const double norm = sketch[0], allowed = tolerance * (norm + floor);
    EXPECT_NEAR(norm_of(ours), norm, allowed) << name << ", norm";
    for (std::size_t j = 0; j + 1 < sketch.size(); ++j) {
      const Words vector(fmt::format("sketch.{}.{}", j, name));
      double dot = 0;
      for (std::size_t i = 0; i < ours.size(); ++i) dot += static_cast<double>(ours[i]) * vector.uniform(i);
      EXPECT_NEAR(dot, sketch[j + 1].get<double>(), allowed) << name << ", dot product " << j;
    }
  }
}

// Gradients that are small beside all of them are compared relative to this part of the norm of all; golden_numbers.py
// says why.
constexpr double kSmall = 1e-3;

}  // namespace overtake::golden
