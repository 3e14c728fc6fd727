// Attention written out in matmuls and a softmax: which forms the pass recognise takes, and which it leaves alone.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "passes/recognise.h"
#include "recognise_parts.h"

namespace overtake {
namespace {

using namespace parts;
using Ops = std::vector<std::string>;

constexpr std::int64_t kBatch = 4, kLength = 5, kWidth = 6, kHeads = 2, kDepth = 3;

// q, k, v [B, S, E] by layers of their own -> what is to be seen as [B, S, E] in the end.
using Build = std::function<Value(Model&, Value q, Value k, Value v)>;

Graph model_of(const Build& build) {
  Model m("attention", kBatch);
  const Value x = m.input({kLength, kWidth});
  const auto fc = [&](const char* name) { return m.linear(x, {.out = kWidth}, name); };
  const Value q = fc("q"), k = fc("k");
  m.mean_squared_error(build(m, q, k, fc("v")));
  return std::move(m).finish();
}

Ops kinds_of_ops(const Graph& g) {
  Ops all;
  for (const Task& t : g.tasks) all.emplace_back(to_string(t.op));
  all.pop_back();
  return all;
}

const Task& attention_of(const Graph& g) {
  const auto it = std::ranges::find_if(g.tasks, [](const Task& t) { return t.op == Op::attention; });
  if (it == g.tasks.end()) throw std::runtime_error("no attention in\n" + print(g));
  return *it;
}

// Exactly three linear layers and an attention that reads them as they are.
void expect_direct(const Build& build, bool causal = false, double scale = 0) {
  const Graph g = recognise(model_of(build));
  verify(g);
  ASSERT_EQ(kinds_of_ops(g), (Ops{"linear", "linear", "linear", "attention"})) << print(g);
  const Task& t = attention_of(g);
  for (const std::size_t i : {0u, 1u, 2u}) EXPECT_EQ(g.buffer_name(g.reads(t)[i]), (std::array{"q", "k", "v"}[i]));
  EXPECT_EQ(g.attrs_of(t).integer("heads"), kHeads);
  EXPECT_EQ(g.attrs_of(t).integer("causal"), causal);
  EXPECT_EQ(g.attrs_of(t).has("scale"), scale != 0);
  if (scale != 0) {
    EXPECT_NEAR(g.attrs_of(t).real("scale"), scale, 1e-6);
  }
}

void expect_no_attention(const Build& build) {
  const Graph before = model_of(build);
  const Ops old = kinds_of_ops(before), now = kinds_of_ops(recognise(before));
  EXPECT_EQ(std::ranges::count(now, "attention"), 0);
  EXPECT_EQ(std::ranges::count(now, "matmul"), std::ranges::count(old, "matmul"));
  EXPECT_EQ(std::ranges::count(now, "softmax"), 1);
}

Value heads(Model& m, Value x) { return heads_of(m, x, kHeads); }
const double kRoot = 1 / std::sqrt(static_cast<double>(kDepth));

// The scores become whatever `change` makes of them before the softmax.
Build with_scores(const std::function<Value(Model&, Value)>& change) {
  return [change](Model& m, Value q, Value k, Value v) {
    const Value scores = change(m, m.matmul(heads(m, q), heads(m, k), false, true));
    return without_heads(m, m.matmul(m.softmax(scores, 3), heads(m, v), false, false, "last"));
  };
}

TEST(RecogniseAttention, PlainForms) {
  expect_direct(with_scores([](Model& m, Value s) { return times(m, s, kRoot); }));
  expect_direct(with_scores([](Model&, Value s) { return s; }), false, 1);
  expect_direct([](Model& m, Value q, Value k, Value v) {  // k as [B, H, D, S]
    const Value kt = m.transpose(m.reshape(k, {kBatch, kLength, kHeads, kDepth}), {0, 2, 3, 1});
    const Value scores = times(m, m.matmul(heads(m, q), kt), kRoot);
    return without_heads(m, m.matmul(m.softmax(scores, 3), heads(m, v)));
  });
  expect_direct([](Model& m, Value q, Value k, Value v) {  // k through [B * H, S, D], roots of the scale on both
    const Value flat = m.reshape(heads(m, k), {kBatch * kHeads, kLength, kDepth});
    const Value kt = m.reshape(m.transpose(flat, {0, 2, 1}), {kBatch, kHeads, kDepth, kLength});
    const double root = std::sqrt(kRoot);
    const Value scores = m.matmul(times(m, heads(m, q), root), times(m, kt, root));
    return without_heads(m, m.matmul(m.softmax(scores, 3), heads(m, v)));
  });
  expect_direct(
      [](Model& m, Value q, Value k, Value v) {  // scaled before the heads are split; the matmul's own scale
        const Value scores = m.layer(Op::matmul, {heads(m, times(m, q, 0.5)), heads(m, k)},
                                     {{"trans_b", std::int64_t{1}}, {"scale", 0.25}});
        return without_heads(m, m.matmul(m.softmax(scores, 3), heads(m, v)));
      },
      false, 0.125);
}

TEST(RecogniseAttention, HeadsJoinedWithTheBatch) {
  const auto flat = [](Model& m, Value x) { return m.reshape(heads(m, x), {kBatch * kHeads, kLength, kDepth}); };
  expect_direct([&](Model& m, Value q, Value k, Value v) {
    const Value scores = times(m, m.matmul(flat(m, q), flat(m, k), false, true), kRoot);
    const Value o = m.matmul(m.softmax(scores, 2), flat(m, v));
    return without_heads(m, m.reshape(o, {kBatch, kHeads, kLength, kDepth}));
  });
  expect_direct(  // apart for the mask, joined again for the product
      [&](Model& m, Value q, Value k, Value v) {
        const Value scores = times(m, m.matmul(flat(m, q), flat(m, k), false, true), kRoot);
        const Value apart = m.add(m.reshape(scores, {kBatch, kHeads, kLength, kLength}),
                                  causal_mask(m, {1, 1, kLength, kLength}, -1e9));
        const Value joined = m.reshape(m.softmax(apart, 3), {kBatch * kHeads, kLength, kLength});
        return without_heads(m, m.reshape(m.matmul(joined, flat(m, v)), {kBatch, kHeads, kLength, kDepth}));
      },
      true);
}

TEST(RecogniseAttention, Masks) {
  const auto masked = [](const Shape& shape, double hidden) {
    return with_scores([=](Model& m, Value s) { return m.add(times(m, s, kRoot), causal_mask(m, shape, hidden)); });
  };
  for (const Shape& shape : {Shape{kLength, kLength}, Shape{1, 1, kLength, kLength}, Shape{kBatch, 1, kLength, kLength},
                             Shape{kBatch, kHeads, kLength, kLength}}) {
    expect_direct(masked(shape, -1e4), true);
    expect_direct(masked(shape, -std::numeric_limits<double>::infinity()), true);
    expect_direct(masked(shape, 0));
    expect_no_attention(masked(shape, -5));
  }
  // The mask before the scale.
  expect_direct(with_scores([](Model& m, Value s) {
                  return times(m, m.add(causal_mask(m, {kLength, kLength}, -1e9), s), kRoot);
                }),
                true);
  // Strictly below the diagonal, one batch different, hidden keys, and a mask that is not constant.
  const auto constant = [](const Shape& shape, const std::function<float(std::size_t)>& f) {
    return with_scores([=](Model& m, Value s) {
      std::vector<float> values(static_cast<std::size_t>(shape.elements()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = f(i);
      return m.add(s, m.constant(shape, values, "mask"));
    });
  };
  expect_no_attention(constant({5, 5}, [](std::size_t i) { return i % 5 >= i / 5 ? -1e9f : 0.0f; }));
  expect_no_attention(constant({kBatch, 1, 5, 5}, [](std::size_t i) { return i == 99 ? 1.0f : 0.0f; }));
  expect_no_attention(constant({kBatch, 1, 1, 5}, [](std::size_t i) { return i % 5 == 4 ? -1e9f : 0.0f; }));
  expect_no_attention(with_scores([](Model& m, Value s) {
    return m.add(s, m.parameter({kHeads, kLength, kLength}, {}, "relative"));
  }));
}

TEST(RecogniseAttention, Packed) {
  const auto packed = [](std::array<std::int64_t, 3> at) {
    Model m("packed", kBatch);
    const Value qkv = m.linear(m.input({kLength, 4}), {.out = 3 * kWidth}, "qkv");
    const auto part = [&](std::size_t i) { return heads(m, m.slice(qkv, 2, at[i] * kWidth, (at[i] + 1) * kWidth)); };
    const Value q = part(0), k = part(1);
    const Value scores = times(m, m.matmul(q, k, false, true), kRoot);
    m.mean_squared_error(without_heads(m, m.matmul(m.softmax(scores, 3), part(2), false, false, "last")));
    return recognise(std::move(m).finish());
  };
  const Graph g = packed({0, 1, 2});
  ASSERT_EQ(kinds_of_ops(g), (Ops{"linear", "attention"})) << print(g);
  EXPECT_EQ(g.reads(attention_of(g))[1], kNone);
  EXPECT_EQ(g.layer_name(attention_of(g).layer), "last");
  // Side by side in every head, [B, S, H, 3, D]: no columns of [B, S, E].
  Model m("interleaved", kBatch);
  const Value qkv =
      m.reshape(m.linear(m.input({kLength, 4}), {.out = 3 * kWidth}), {kBatch, kLength, kHeads, 3, kDepth});
  const auto part = [&](std::int64_t i) {
    const Value x = m.reshape(m.slice(qkv, 3, i, i + 1), {kBatch, kLength, kHeads, kDepth});
    return m.transpose(x, {0, 2, 1, 3});
  };
  const Value q = part(0), k = part(1);
  m.mean_squared_error(m.matmul(m.softmax(m.matmul(q, k, false, true), 3), part(2)));
  EXPECT_EQ(std::ranges::count(kinds_of_ops(recognise(std::move(m).finish())), "attention"), 0);
  // In another order they are slices.
  EXPECT_EQ(kinds_of_ops(packed({1, 0, 2})), (Ops{"linear", "slice", "slice", "slice", "attention"}));
}

TEST(RecogniseAttention, MultiHeadAttentionOfPyTorch) {
  Model m("mha", kBatch);
  const Value x = m.relu(m.linear(m.input({kLength, 4}), {.out = kWidth}, "before"));
  m.mean_squared_error(m.add(x, multi_head_attention(m, x, kHeads, "mha")));
  const Graph g = recognise(std::move(m).finish());
  verify(g);
  EXPECT_EQ(kinds_of_ops(g), (Ops{"linear", "activation", "linear", "attention", "linear", "add"})) << print(g);
  EXPECT_EQ(g.reads(attention_of(g))[1], kNone);
  EXPECT_FALSE(g.attrs_of(attention_of(g)).has("scale"));
}

TEST(RecogniseAttention, OtherKeysThanQueries) {
  Model m("cross", kBatch);
  const Value q = m.linear(m.input({kLength, 4}), {.out = kWidth}, "q");
  const Value kv = m.linear(m.input({7, 4}, "memory"), {.out = 2 * kWidth}, "kv");
  const Value k = heads(m, m.slice(kv, 2, 0, kWidth)), v = heads(m, m.slice(kv, 2, kWidth, 2 * kWidth));
  const Value scores = times(m, m.matmul(heads(m, q), k, false, true), kRoot);
  m.mean_squared_error(without_heads(m, m.matmul(m.softmax(scores, 3), v)));
  const Graph g = recognise(std::move(m).finish());
  EXPECT_EQ(kinds_of_ops(g), (Ops{"linear", "linear", "slice", "slice", "attention"})) << print(g);
}

TEST(RecogniseAttention, OneHeadAndFlatRows) {
  Model m("one", kBatch);
  const Value x = m.reshape(m.input({kLength, 4}), {kBatch * kLength, 4});
  const auto fc = [&](const char* name) {
    return m.reshape(m.linear(x, {.out = kWidth}, name), {kBatch, kLength, kWidth});
  };
  const Value q = fc("q"), k = fc("k");
  const Value scores = times(m, m.matmul(q, k, false, true), 1 / std::sqrt(static_cast<double>(kWidth)));
  m.mean_squared_error(m.matmul(m.softmax(scores, 2), fc("v")));
  const Graph g = recognise(std::move(m).finish());
  ASSERT_EQ(kinds_of_ops(g), (Ops{"linear", "linear", "linear", "attention"})) << print(g);
  EXPECT_EQ(g.attrs_of(attention_of(g)).integer("heads"), 1);
  EXPECT_FALSE(g.attrs_of(attention_of(g)).has("scale"));
}

TEST(RecogniseAttention, LeftAlone) {
  const auto usual = [](Model& m, Value q, Value k) { return times(m, m.matmul(q, k, false, true), kRoot); };
  expect_no_attention([&](Model& m, Value q, Value k, Value v) {  // over queries
    return without_heads(m, m.matmul(m.softmax(usual(m, heads(m, q), heads(m, k)), 2), heads(m, v)));
  });
  expect_no_attention([&](Model& m, Value q, Value k, Value v) {  // somebody else reads the probabilities
    const Value p = m.softmax(usual(m, heads(m, q), heads(m, k)), 3);
    return m.add(without_heads(m, m.matmul(p, heads(m, v))), m.reduce_sum(p, {0, 1, 2, 3}));
  });
  expect_no_attention([&](Model& m, Value q, Value k, Value v) {  // dropout between
    const Value p = m.dropout(m.softmax(usual(m, heads(m, q), heads(m, k)), 3), 0.1);
    return without_heads(m, m.matmul(p, heads(m, v)));
  });
  expect_no_attention([&](Model& m, Value q, Value k, Value v) {  // heads interleaved: [B, S, D, H]
    const auto interleaved = [&](Value x) {
      return m.transpose(m.reshape(x, {kBatch, kLength, kDepth, kHeads}), {0, 3, 1, 2});
    };
    const Value scores = usual(m, interleaved(q), interleaved(k));
    return without_heads(m, m.matmul(m.softmax(scores, 3), heads(m, v)));
  });
  expect_no_attention([&](Model& m, Value q, Value k, Value v) {  // positions turned in after the split
    const Value turned = m.mul(heads(m, q), m.parameter({kLength, kDepth}, {Init::Kind::ones}, "turn"));
    return without_heads(m, m.matmul(m.softmax(usual(m, turned, heads(m, k)), 3), heads(m, v)));
  });
}

// How long it takes is on record, not asked for.
TEST(Recognise, PutsFiveThousandTasksTogether) {
  Model m("deep", kBatch);
  Value x = m.linear(m.input({kLength, kWidth}), {.out = kWidth});
  std::size_t layers = 0;
  for (; layers * 50 < 5000; ++layers) {
    const std::string name = fmt::format("layer{}", layers);
    x = m.add(x, multi_head_attention(m, layer_norm(m, x, name + ".norm"), kHeads, name));
    x = gelu(m, x, Association::left);
  }
  m.mean_squared_error(x);
  Graph g = std::move(m).finish();
  EXPECT_GE(g.tasks.size(), 5000u);
  const auto start = std::chrono::steady_clock::now();
  g = recognise(std::move(g));
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(g.tasks.size(), 2 + layers * 6);  // norm, linear, attention, linear, add, gelu
  RecordProperty("milliseconds", static_cast<int>(ms));
}

}  // namespace
}  // namespace overtake
