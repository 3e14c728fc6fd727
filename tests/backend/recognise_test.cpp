// Groups that the pass recognise replaces compute what they did before: the same losses and gradients, step by step.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "passes/keep.h"
#include "recognise_parts.h"
#include "run_setup.h"

namespace overtake {
namespace {

using namespace parts;

constexpr int kSteps = 3;

struct Case {
  std::string name;
  Dims sample;  // input [4, ...]
  std::function<Value(Model&, Value)> build;
  std::string op;  // what must be there with the pass, and must not without: an op, or an activation's function
};

Graph graph_of(const Case& c) {
  Model m(c.name, 4);
  const Value x = m.input(c.sample);
  m.mean_squared_error(c.build(m, x));
  return std::move(m).finish();
}

struct Trained {
  std::vector<double> losses;
  double evaluated = 0;
  std::map<std::string, std::vector<float>> gradients;  // of the last step, by weight
  std::size_t tasks = 0, found = 0;                     // forward tasks, and those of the case's op
};

std::vector<float> numbers_of(Executor& executor, BufferId b) {
  std::vector<float> values(static_cast<std::size_t>(executor.plan(0).graph.buffers[b].shape.elements()));
  executor.read_plain(b, std::as_writable_bytes(std::span(values)));
  return values;
}

Trained trained(const Case& c, bool with_pass) {
  RunSetup options = in_order_setup();
  options.spec.threads = 2;
  options.spec.seed = 5;
  options.spec.skip_passes = {"fuse_elementwise"};  // makes one task of formulas that are not recognised, too
  if (!with_pass) options.spec.skip_passes.push_back("recognise");
  options.more.compile.extra_passes = {keep_gradients()};
  TrainingRun training = run_of(graph_of(c), options);
  training.fill_inputs(9);
  Trained r;
  r.evaluated = static_cast<double>(training.evaluate().loss);
  for (int i = 0; i < kSteps; ++i) r.losses.push_back(static_cast<double>(training.step(0.1f).loss));
  const Graph& g = training.graph();
  for (const Parameter& p : g.parameters)
    if (p.gradient != kNone) r.gradients[g.buffer_name(p.buffer)] = numbers_of(training.executor(), p.gradient);
  for (const Task& t : g.tasks) {
    if (t.kind != Kind::forward) continue;
    ++r.tasks;
    r.found += to_string(t.op) == c.op || (t.op == Op::activation && g.attrs_of(t).text("function") == c.op);
  }
  return r;
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float x : values) most = std::max(most, std::abs(static_cast<double>(x)));
  return most;
}

void expect_close(const Trained& with, const Trained& without) {
  for (std::size_t i = 0; i < kSteps; ++i)
    EXPECT_NEAR(with.losses[i], without.losses[i], 1e-5 * std::abs(without.losses[i])) << "step " << i;
  EXPECT_NEAR(with.evaluated, without.evaluated, 1e-5 * std::abs(without.evaluated));
  EXPECT_NE(without.losses[0], without.losses[kSteps - 1]);
  ASSERT_EQ(with.gradients.size(), without.gradients.size());
  double most = 0;
  for (const auto& [name, values] : without.gradients) most = std::max(most, largest(values));
  EXPECT_GT(most, 1e-3);
  for (const auto& [name, values] : without.gradients) {
    const auto it = with.gradients.find(name);
    ASSERT_NE(it, with.gradients.end()) << name;
    ASSERT_EQ(it->second.size(), values.size()) << name;
    // The gradient of a key's bias is 0 but for rounding, so the smallest scale is taken from the others.
    const double scale = std::max(largest(values), 0.01 * most);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(static_cast<double>(it->second[i]), static_cast<double>(values[i]), 1e-4 * scale)
          << name << " at " << i;
  }
}

Value fc(Model& m, Value x, std::int64_t out, const std::string& name) { return m.linear(x, {.out = out}, name); }

Value attention(Model& m, Value x, bool causal, bool keys_swapped) {
  const std::int64_t heads = 2, length = m.shape(x)[1];
  const Value q = heads_of(m, fc(m, x, 8, "q"), heads), k = heads_of(m, fc(m, x, 8, "k"), heads);
  const Value v = heads_of(m, fc(m, x, 8, "v"), heads);
  Value scores =
      keys_swapped ? m.matmul(times(m, q, 0.4), last_two_swapped(m, k)) : times(m, m.matmul(q, k, false, true), 0.5);
  if (causal) scores = m.add(scores, causal_mask(m, {4, 1, length, length}));
  return without_heads(m, m.matmul(m.softmax(scores, 3), v));
}

std::vector<Case> cases() {
  return {
      {"bias",
       {3, 5},
       [](Model& m, Value x) {
         const Value y = m.linear(x, {.out = 4, .bias = false}, "fc");
         return m.relu(m.add(m.reshape(y, {12, 4}), m.parameter({4}, {Init::Kind::normal, 1}, "b")));
       },
       "linear"},
      {"moves",
       {3, 5},
       [](Model& m, Value x) {
         const Value y = m.transpose(fc(m, m.transpose(m.relu(fc(m, x, 5, "a")), {1, 0, 2}), 6, "b"), {1, 2, 0});
         const Value z = m.reshape(m.transpose(m.reshape(y, {6, 3, 4}), {0, 2, 1}), {6, 4, 3});
         return m.transpose(m.transpose(z, {2, 0, 1}), {2, 0, 1});
       },
       "linear"},
      {"gelu", {7}, [](Model& m, Value x) { return gelu(m, fc(m, x, 5, "fc"), Association::right); }, "gelu"},
      {"gelu_tanh",
       {7},
       [](Model& m, Value x) { return gelu_tanh(m, fc(m, x, 5, "fc"), Association::left); },
       "gelu_tanh"},
      {"silu",
       {7},
       [](Model& m, Value x) {
         const Value y = fc(m, x, 5, "fc");
         return m.mul(m.activation(y, "sigmoid"), y);
       },
       "silu"},
      {"hard_sigmoid",
       {7},
       [](Model& m, Value x) { return times(m, relu6_shifted(m, fc(m, x, 5, "fc")), 1.0 / 6); },
       "hard_sigmoid"},
      {"hard_swish",
       {7},
       [](Model& m, Value x) {
         const Value y = times(m, fc(m, x, 5, "fc"), 3);
         return scaled_gate(m, 1.0 / 6, y, relu6_shifted(m, y), Association::gate_first);
       },
       "hard_swish"},
      {"mish",
       {7},
       [](Model& m, Value x) {
         const Value y = fc(m, x, 5, "fc");
         return m.mul(y, m.activation(m.activation(y, "softplus"), "tanh"));
       },
       "mish"},
      {"layer_norm", {3, 5}, [](Model& m, Value x) { return layer_norm(m, fc(m, x, 7, "fc"), "norm"); }, "layer_norm"},
      {"bare_norm", {3, 5}, [](Model& m, Value x) { return normalised(m, fc(m, x, 7, "fc"), 2); }, "layer_norm"},
      {"group_norm",
       {3, 5, 5},
       [](Model& m, Value x) {
         const Value y = m.conv2d(x, {.out = 6, .kernel = 3}, "conv");
         return m.relu(group_norm(m, y, 3, {6, 1, 1}, "norm"));
       },
       "group_norm"},
      {"attention", {5, 6}, [](Model& m, Value x) { return attention(m, x, false, false); }, "attention"},
      {"causal", {5, 6}, [](Model& m, Value x) { return attention(m, x, true, true); }, "attention"},
      {"packed",
       {5, 6},
       [](Model& m, Value x) {
         const Value qkv = fc(m, x, 24, "qkv");
         const auto part = [&](std::int64_t i) { return heads_of(m, m.slice(qkv, 2, 8 * i, 8 * i + 8), 4); };
         const Value q = part(0), k = part(1);
         return without_heads(m, m.matmul(m.softmax(m.matmul(q, k, false, true), 3), part(2)));
       },
       "attention"},
      {"multi_head",
       {5, 6},
       [](Model& m, Value x) {
         const Value y = m.relu(fc(m, x, 8, "before"));
         return m.add(multi_head_attention(m, y, 2, "mha"), y);
       },
       "attention"},
      {"block",
       {5, 8},
       [](Model& m, Value in) {
         Value x = fc(m, in, 8, "embed");
         x = m.add(x, multi_head_attention(m, layer_norm(m, x, "norm1"), 2, "mha"));
         const Value wide = fc(m, layer_norm(m, x, "norm2"), 12, "up");
         return m.add(x, fc(m, gelu(m, wide, Association::left), 8, "down"));
       },
       "attention"},
  };
}

class RecogniseNumbers : public testing::TestWithParam<Case> {};

TEST_P(RecogniseNumbers, SameLossesAndGradients) {
  const Trained with = trained(GetParam(), true), without = trained(GetParam(), false);
  EXPECT_LT(with.tasks, without.tasks);
  EXPECT_GT(with.found, 0u);
  if (GetParam().op != "linear") {
    EXPECT_EQ(without.found, 0u);
  }
  expect_close(with, without);
}

INSTANTIATE_TEST_SUITE_P(All, RecogniseNumbers, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace overtake
