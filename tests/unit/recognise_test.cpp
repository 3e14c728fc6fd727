// Which groups the pass recognise takes, and which it leaves alone.

#include "passes/recognise.h"

#include <gtest/gtest.h>

#include <functional>

#include "recognise_parts.h"

namespace overtake {
namespace {

using namespace parts;
using Ops = std::vector<std::string>;

// "linear", or "gelu" for an activation; the loss at the end is left out.
Ops ops_of(const Graph& g) {
  Ops all;
  for (const Task& t : g.tasks)
    all.emplace_back(t.op == Op::activation ? g.attrs_of(t).text("function") : to_string(t.op));
  all.pop_back();
  return all;
}

// A model of one input [4, ...] with a mean squared error at its end, before the pass.
Graph model_of(const Dims& sample, const std::function<Value(Model&, Value)>& build) {
  Model m("parts", 4);
  const Value x = m.input(sample);
  m.mean_squared_error(build(m, x));
  return std::move(m).finish();
}

Graph recognised(const Dims& sample, const std::function<Value(Model&, Value)>& build) {
  Graph g = recognise(model_of(sample, build));
  verify(g);
  return g;
}

void expect_left_alone(const Dims& sample, const std::function<Value(Model&, Value)>& build) {
  const Graph before = model_of(sample, build);
  EXPECT_EQ(print(recognise(before)), print(before));
}

constexpr Association kAssociations[] = {Association::left, Association::right, Association::gate_first,
                                         Association::swapped};

TEST(RecogniseMoves, WhatUndoesItselfGoes) {
  const auto fc = [](Model& m, Value x) { return m.linear(x, {.out = 3}, "fc"); };
  EXPECT_EQ(ops_of(recognised({2, 6},
                              [&](Model& m, Value x) {
                                return m.reshape(fc(m, x), {4, 2, 3});
                              })),
            Ops{"linear"});
  EXPECT_EQ(ops_of(recognised({2, 6}, [&](Model& m, Value x) { return m.slice(fc(m, x), 1, 0, 2); })), Ops{"linear"});
  EXPECT_EQ(ops_of(recognised({2, 6},
                              [&](Model& m, Value x) {
                                return m.transpose(fc(m, x), {0, 1, 2});
                              })),
            Ops{"linear"});
  EXPECT_EQ(ops_of(recognised({2, 6},
                              [&](Model& m, Value x) {
                                return m.transpose(m.transpose(fc(m, x), {2, 0, 1}), {1, 2, 0});
                              })),
            Ops{"linear"});
  EXPECT_EQ(ops_of(recognised({2, 6},
                              [&](Model& m, Value x) {
                                return m.reshape(m.reshape(m.reshape(fc(m, x), {8, 3}), {24}), {2, 12});
                              })),
            (Ops{"linear", "reshape"}));
}

TEST(RecogniseMoves, OnlyDimensionsOfExtentOneMove) {
  const Graph g = recognised({1, 6}, [](Model& m, Value x) { return m.transpose(m.linear(x, {.out = 3}), {1, 0, 2}); });
  EXPECT_EQ(ops_of(g), (Ops{"linear", "reshape"}));
  EXPECT_EQ(g.buffers[g.reads(g.tasks[1])[0]].shape, (Shape{4, 1, 3}));
}

TEST(RecogniseMoves, LeadingDimensionsJoinedAroundASwap) {
  // [4, 2, 3, 5] -> [8, 3, 5] -> [8, 5, 3] -> [4, 2, 5, 3] is one transpose.
  const Graph g = recognised({2, 3, 5}, [](Model& m, Value x) {
    const Value y = m.add(x, m.parameter({5}, {}, "shift"));
    return m.reshape(m.transpose(m.reshape(y, {8, 3, 5}), {0, 2, 1}), {4, 2, 5, 3});
  });
  ASSERT_EQ(ops_of(g), (Ops{"add", "transpose"}));
  EXPECT_EQ(g.attrs_of(g.tasks[1]).integers("order"), (Dims{0, 1, 3, 2}));
}

TEST(RecogniseMoves, LeftAlone) {
  // A real transpose, a real reshape, and a reshape of a transpose that no single one can do.
  expect_left_alone({2, 6}, [](Model& m, Value x) { return m.transpose(m.linear(x, {.out = 3}), {1, 0, 2}); });
  expect_left_alone({2, 6}, [](Model& m, Value x) { return m.reshape(m.linear(x, {.out = 3}), {8, 3}); });
  expect_left_alone({2, 6}, [](Model& m, Value x) {
    return m.reshape(m.transpose(m.linear(x, {.out = 3}), {1, 0, 2}), {8, 3});
  });
  // Two moves would do instead of three, but two of the three stay for somebody else.
  expect_left_alone({2, 6}, [](Model& m, Value x) {
    const Value y = m.reshape(m.transpose(m.linear(x, {.out = 6}), {1, 0, 2}), {2, 4, 2, 3});
    return m.add(m.transpose(y, {2, 1, 0, 3}), m.reduce_sum(y, {0, 1, 2, 3}));
  });
}

TEST(RecogniseMoves, AroundALinearLayer) {
  const Graph g = recognised({5, 6}, [](Model& m, Value x) {
    const Value y = m.linear(m.transpose(x, {1, 0, 2}), {.out = 3}, "fc");  // [5, 4, 3]
    return m.transpose(y, {1, 0, 2});
  });
  ASSERT_EQ(ops_of(g), Ops{"linear"});
  EXPECT_EQ(g.buffers[g.writes(g.tasks[0])[0]].shape, (Shape{4, 5, 3}));
  EXPECT_EQ(ops_of(recognised({5, 6},
                              [](Model& m, Value x) {
                                return m.reshape(m.linear(m.reshape(x, {20, 6}), {.out = 3}), {4, 5, 3});
                              })),
            Ops{"linear"});
  // The last dimension does not stay, or the rows do not come back in order, or something else reads the layer.
  expect_left_alone({6, 6}, [](Model& m, Value x) {
    return m.transpose(m.linear(m.transpose(x, {0, 2, 1}), {.out = 6}), {0, 2, 1});
  });
  expect_left_alone({5, 6}, [](Model& m, Value x) {
    return m.reshape(m.linear(m.transpose(x, {1, 0, 2}), {.out = 3}), {20, 3});
  });
  expect_left_alone({5, 6}, [](Model& m, Value x) {
    const Value y = m.linear(m.transpose(x, {1, 0, 2}), {.out = 3});
    return m.add(m.transpose(y, {1, 0, 2}), m.reduce_sum(y, {0, 1, 2}));
  });
  expect_left_alone({5, 6}, [](Model& m, Value x) {
    return m.reshape(m.linear(m.transpose(x, {1, 0, 2}), {.out = 3}), {4, 5, 3});
  });
}

TEST(Recognise, WhatNobodyNeedsGoes) {
  const Graph g = recognised({3, 4, 4}, [](Model& m, Value x) {
    const Value y = m.conv2d(x, {.out = 2, .bias = false}, "used");
    m.batch_norm(y, {}, "unread_norm");
    m.relu(m.linear(m.flatten(x), {.out = 3}, "unread"));
    m.parameter({7}, {}, "unread_weight");
    number(m, 5);
    return m.linear(m.flatten(y), {.out = 3}, "fc");
  });
  EXPECT_EQ(ops_of(g), (Ops{"conv2d", "reshape", "linear"}));
  Ops names;
  for (const Parameter& p : g.parameters) names.push_back(g.buffer_name(p.buffer));
  EXPECT_EQ(names, (Ops{"used.weight", "fc.weight", "fc.bias"}));
  EXPECT_TRUE(g.constants.empty());
}

TEST(Recognise, LinearTakesItsBias) {
  for (const bool is_first : {false, true}) {
    const Graph g = recognised({2, 6}, [&](Model& m, Value x) {
      const Value y = m.linear(x, {.out = 3, .bias = false}, "fc"), b = m.parameter({3}, {}, "b");
      return is_first ? m.add(b, y, "sum") : m.add(y, b, "sum");
    });
    ASSERT_EQ(ops_of(g), Ops{"linear"});
    EXPECT_EQ(g.buffer_name(g.reads(g.tasks[0])[2]), "b");
    EXPECT_EQ(g.layer_name(g.tasks[0].layer), "sum");
    EXPECT_EQ(g.attrs_of(g.tasks[0]).integer("bias"), 1);
  }
  const Graph reshaped = recognised({2, 6}, [](Model& m, Value x) {
    const Value y = m.linear(m.relu(x), {.out = 3, .bias = false});
    return m.add(m.reshape(y, {8, 3}), m.constant({3}, std::vector<float>{1, 2, 3}, "b"));
  });
  EXPECT_EQ(ops_of(reshaped), (Ops{"relu", "linear", "reshape"}));
}

TEST(Recognise, LinearLeavesOtherSums) {
  const auto fc = [](Model& m, Value x) { return m.linear(x, {.out = 3, .bias = false}); };
  // Somebody else reads the product; another shape; a bias already; the last dimension does not stay.
  expect_left_alone({2, 6}, [&](Model& m, Value x) {
    const Value y = fc(m, x);
    return m.add(m.add(y, m.parameter({3}, {}, "b")), m.relu(y));
  });
  expect_left_alone({2, 6}, [&](Model& m, Value x) { return m.add(fc(m, x), m.parameter({1, 3}, {}, "b")); });
  expect_left_alone({2, 6}, [&](Model& m, Value x) { return m.add(fc(m, x), m.parameter({1}, {}, "b")); });
  expect_left_alone({2, 6},
                    [](Model& m, Value x) { return m.add(m.linear(x, {.out = 3}), m.parameter({3}, {}, "b")); });
  expect_left_alone({2, 6}, [](Model& m, Value x) {
    return m.add(m.reshape(m.linear(x, {.out = 6, .bias = false}), {4, 4, 3}), m.parameter({3}, {}, "b"));
  });
}

TEST(Recognise, Gelu) {
  for (const Association how : kAssociations) {
    EXPECT_EQ(ops_of(recognised({6}, [&](Model& m, Value x) { return gelu(m, m.linear(x, {.out = 3}), how); })),
              (Ops{"linear", "gelu"}));
    EXPECT_EQ(ops_of(recognised({6}, [&](Model& m, Value x) { return gelu_tanh(m, m.linear(x, {.out = 3}), how); })),
              (Ops{"linear", "gelu_tanh"}));
  }
  // x (1 + 0.044715 x^2) instead of x + 0.044715 x^3
  EXPECT_EQ(ops_of(recognised({6},
                              [](Model& m, Value in) {
                                const Value x = m.linear(in, {.out = 3});
                                const Value square = plus(m, times(m, m.mul(x, x), 0.044715), 1);
                                const Value inner = m.mul(times(m, x, 0.7978845608), square);
                                return m.mul(times(m, x, 0.5), plus(m, m.activation(inner, "tanh"), 1));
                              })),
            (Ops{"linear", "gelu_tanh"}));
}

TEST(Recognise, GeluLeavesOtherFormulas) {
  const auto fc = [](Model& m, Value x) { return m.linear(x, {.out = 3}); };
  expect_left_alone({6}, [&](Model& m, Value x) { return gelu(m, fc(m, x), Association::left, 0.72); });
  expect_left_alone({6}, [&](Model& m, Value in) {  // the gate is of something else
    const Value x = fc(m, in), other = fc(m, in);
    return scaled_gate(m, 0.5, x, plus(m, m.activation(times(m, other, 0.70710678), "erf"), 1), Association::right);
  });
  expect_left_alone({6}, [&](Model& m, Value in) {  // somebody else reads the gate
    const Value x = fc(m, in), gate = plus(m, m.activation(times(m, x, 0.70710678), "erf"), 1);
    return m.add(scaled_gate(m, 0.5, x, gate, Association::left), gate);
  });
  expect_left_alone({6}, [&](Model& m, Value in) {
    const Value x = fc(m, in);
    return scaled_gate(m, 0.5, x, plus(m, m.activation(times(m, x, 0.70710678), "erf"), 2), Association::left);
  });
}

TEST(Recognise, OtherActivations) {
  const auto one = [](const std::function<Value(Model&, Value)>& f) {
    const Graph g = recognised({6}, [&](Model& m, Value x) { return f(m, m.linear(x, {.out = 3})); });
    return g.tasks.size() == 3 ? ops_of(g)[1] : print(g);
  };
  EXPECT_EQ(one([](Model& m, Value x) { return m.mul(x, m.activation(x, "sigmoid")); }), "silu");
  EXPECT_EQ(one([](Model& m, Value x) { return m.mul(m.activation(x, "sigmoid"), x); }), "silu");
  EXPECT_EQ(one([](Model& m, Value x) { return times(m, relu6_shifted(m, x), 1.0 / 6); }), "hard_sigmoid");
  EXPECT_EQ(one([](Model& m, Value x) { return m.clip(plus(m, times(m, x, 1.0 / 6), 0.5), 0, 1); }), "hard_sigmoid");
  for (const Association how : kAssociations)
    EXPECT_EQ(one([&](Model& m, Value x) { return scaled_gate(m, 1.0 / 6, x, relu6_shifted(m, x), how); }),
              "hard_swish");
  EXPECT_EQ(one([](Model& m, Value x) { return m.mul(x, m.activation(x, "hard_sigmoid")); }), "hard_swish");
  EXPECT_EQ(one([](Model& m, Value x) { return m.mul(x, m.activation(m.activation(x, "softplus"), "tanh")); }), "mish");
}

TEST(Recognise, OtherActivationsLeaveOtherFormulas) {
  const auto fc = [](Model& m, Value x) { return m.linear(x, {.out = 3}); };
  expect_left_alone({6}, [&](Model& m, Value x) { return m.mul(fc(m, x), m.activation(fc(m, x), "sigmoid")); });
  expect_left_alone({6}, [&](Model& m, Value x) {
    const Value y = fc(m, x), s = m.activation(y, "sigmoid");
    return m.add(m.mul(y, s), s);
  });
  expect_left_alone({6}, [&](Model& m, Value x) { return times(m, m.clip(plus(m, fc(m, x), 3), 0, 5), 1.0 / 6); });
  expect_left_alone({6}, [&](Model& m, Value x) { return times(m, m.clip(plus(m, fc(m, x), 2), 0, 6), 1.0 / 6); });
  expect_left_alone({6}, [&](Model& m, Value x) { return times(m, relu6_shifted(m, fc(m, x)), 0.2); });
}

TEST(Recognise, LayerNorm) {
  const Graph g = recognised({2, 6}, [](Model& m, Value x) { return layer_norm(m, m.linear(x, {.out = 3}), "norm"); });
  ASSERT_EQ(ops_of(g), (Ops{"linear", "layer_norm"}));
  EXPECT_NEAR(g.attrs_of(g.tasks[1]).real("eps"), 1e-5, 1e-10);
  EXPECT_EQ(g.buffer_name(g.reads(g.tasks[1])[1]), "norm.weight");
  EXPECT_EQ(g.buffer_name(g.reads(g.tasks[1])[2]), "norm.bias");
  EXPECT_TRUE(g.constants.empty());

  const auto gamma = [](Model& m) { return m.parameter({3}, {}, "gamma"); };
  const auto centred = [](Model& m, Value x) { return minus(m, x, mean(m, x, 2)); };
  // Without gamma and beta; with gamma in the middle; the difference made twice; the root behind the reciprocal.
  const Graph bare = recognised({2, 6}, [](Model& m, Value x) { return normalised(m, m.linear(x, {.out = 3}), 2); });
  ASSERT_EQ(ops_of(bare), (Ops{"linear", "layer_norm"}));
  EXPECT_EQ(bare.constants.size(), 2u);
  EXPECT_EQ(ops_of(recognised({2, 6},
                              [&](Model& m, Value in) {
                                const Value x = m.linear(in, {.out = 3}), d = centred(m, x), e = centred(m, x);
                                const Value variance = plus(m, mean(m, m.mul(e, e), 2), 1e-6);
                                const Value r = m.activation(m.activation(variance, "reciprocal"), "sqrt");
                                return m.mul(m.mul(gamma(m), r), d);
                              })),
            (Ops{"linear", "layer_norm"}));
  // Sum and division instead of a mean.
  EXPECT_EQ(ops_of(recognised({2, 6},
                              [&](Model& m, Value in) {
                                const Value x = m.linear(in, {.out = 3}), d = centred(m, x);
                                const Value sum = m.reshape(m.reduce_sum(m.mul(d, d), {2}), {4, 2, 1});
                                const Value root = m.activation(plus(m, times(m, sum, 1.0 / 3), 1e-6), "sqrt");
                                return m.mul(over(m, d, root), gamma(m));
                              })),
            (Ops{"linear", "layer_norm"}));
}

TEST(Recognise, LayerNormLeavesOtherFormulas) {
  const auto fc = [](Model& m, Value x) { return m.linear(x, {.out = 3}); };
  expect_left_alone({2, 6}, [&](Model& m, Value x) { return normalised(m, fc(m, x), 1); });  // another axis
  expect_left_alone({3, 6}, [&](Model& m, Value in) {  // the mean of a column taken off a row
    const Value x = fc(m, in), d = minus(m, x, m.reshape(m.reduce_mean(x, {1}), {4, 3, 1}));
    return over(m, d, m.activation(plus(m, mean(m, m.mul(d, d), 2), 1e-5), "sqrt"));
  });
  expect_left_alone({2, 6}, [&](Model& m, Value in) {  // the mean of another
    const Value x = fc(m, in), d = minus(m, x, mean(m, fc(m, in), 2));
    return over(m, d, m.activation(plus(m, mean(m, m.mul(d, d), 2), 1e-5), "sqrt"));
  });
  expect_left_alone({2, 6}, [&](Model& m, Value in) {  // somebody else reads the difference
    const Value x = fc(m, in), d = minus(m, x, mean(m, x, 2));
    return m.add(over(m, d, m.activation(plus(m, mean(m, m.mul(d, d), 2), 1e-5), "sqrt")), d);
  });
  expect_left_alone({2, 6}, [&](Model& m, Value in) {  // n - 1
    const Value x = fc(m, in), d = minus(m, x, mean(m, x, 2));
    const Value variance = times(m, m.reshape(m.reduce_sum(m.mul(d, d), {2}), {4, 2, 1}), 0.5);
    return over(m, d, m.activation(plus(m, variance, 1e-5), "sqrt"));
  });
}

TEST(Recognise, GroupNorm) {
  for (const Dims& shape : {Dims{6, 1, 1}, Dims{1, 6, 1, 1}}) {
    const Graph g = recognised(
        {3, 4, 4}, [&](Model& m, Value x) { return group_norm(m, m.conv2d(x, {.out = 6}), 2, shape, "norm"); });
    ASSERT_EQ(ops_of(g), (Ops{"conv2d", "group_norm"}));
    EXPECT_EQ(g.attrs_of(g.tasks[1]).integer("groups"), 2);
    for (const std::size_t i : {1u, 2u}) EXPECT_EQ(g.buffers[g.reads(g.tasks[1])[i]].shape, Shape{6});
    EXPECT_EQ(g.parameters.size(), 4u);
  }
  // Weights [C] that are seen as [C, 1, 1], and the norm itself in parts.
  EXPECT_EQ(ops_of(recognised({3, 4, 4},
                              [](Model& m, Value x) {
                                const Value y = m.conv2d(x, {.out = 6});
                                const Value bare = m.reshape(normalised(m, m.reshape(y, {4, 3, 32}), 2), {4, 6, 4, 4});
                                const Value gamma = m.reshape(m.parameter({6}, {}, "gamma"), {6, 1, 1});
                                return m.add(m.mul(gamma, bare), m.reshape(m.parameter({6}, {}, "beta"), {6, 1, 1}));
                              })),
            (Ops{"conv2d", "group_norm"}));
}

TEST(Recognise, GroupNormLeavesWhatItCannotTake) {
  // A weight that somebody else reads too stays outside.
  const Graph g = recognised({3, 4, 4}, [](Model& m, Value x) {
    const Value gamma = m.parameter({6, 1, 1}, {}, "gamma");
    const Value y = m.conv2d(x, {.out = 6});
    const Value bare = m.reshape(normalised(m, m.reshape(y, {4, 3, 32}), 2), {4, 6, 4, 4});
    return m.add(m.mul(bare, gamma), gamma);
  });
  EXPECT_EQ(ops_of(g), (Ops{"conv2d", "group_norm", "mul", "add"}));
  // Groups that cut through channels.
  EXPECT_EQ(ops_of(recognised({3, 4, 4},
                              [](Model& m, Value x) {
                                const Value y = m.conv2d(x, {.out = 6});
                                return m.reshape(normalised(m, m.reshape(y, {4, 12, 8}), 2), {4, 6, 4, 4});
                              })),
            (Ops{"conv2d", "reshape", "layer_norm", "reshape"}));
}

}  // namespace
}  // namespace overtake
