// Linear, matmul, attention, embedding, tied weights.

#include "op_case.h"

namespace overtake::reference {
namespace {

struct LinearCase {
  Dims x;
  std::int64_t out;
  bool bias;
  std::string function;  // given to the layer
  std::string after;     // an activation layer behind it, which is fused
};

OpCase linear_case(const LinearCase& c) {
  return {.batch = c.x[0],
          .build =
              [c](OpBuilder& b) {
                const Linear options{.out = c.out, .bias = c.bias, .function = c.function};
                const Value y = b.m.linear(b.arg("x", c.x), options, "fc");
                return c.after.empty() ? y : b.m.activation(y, c.after, "act");
              },
          .predict =
              [c](const Values& v) {
                const Tensor y = linear(v.at("x"), v.at("fc.weight"), c.bias ? &v.at("fc.bias") : nullptr);
                return activation(c.after, activation(c.function, y));
              }};
}

TEST(OpLinear, ShapesAndBias) {
  for (const LinearCase& c : std::vector<LinearCase>{{{5, 7}, 3, true, "", ""},
                                                     {{1, 1}, 1, true, "", ""},
                                                     {{13, 33}, 17, false, "", ""},
                                                     {{2, 3, 9}, 20, true, "", ""},
                                                     {{3, 2, 2, 5}, 4, true, "", ""}})
    check_op(linear_case(c));
}

TEST(OpLinear, OwnFunction) {
  for (const char* function : {"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "hard_swish", "hard_sigmoid"}) {
    SCOPED_TRACE(function);
    check_op(linear_case({{7, 11}, 19, true, function, ""}));
  }
}

TEST(OpLinear, FusedFunction) {
  for (const char* function : {"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "hard_swish", "hard_sigmoid"}) {
    SCOPED_TRACE(function);
    check_op(linear_case({{5, 3, 6}, 9, function != std::string("tanh"), "", function}));
  }
}

TEST(OpLinear, TwoFunctionsInARow) { check_op(linear_case({{5, 6}, 9, true, "tanh", "gelu"})); }

TEST(OpLinear, Bf16) {
  check_op_bf16(linear_case({{9, 33}, 18, true, "", ""}));
  check_op_bf16(linear_case({{4, 3, 16}, 32, true, "", "gelu_tanh"}));
  check_op_bf16(linear_case({{6, 8}, 5, false, "relu", ""}));
}

struct MatmulCase {
  Dims a, b;
  bool trans_a, trans_b;
};

OpCase matmul_case(const MatmulCase& c) {
  return {.batch = c.a[0],
          .build = [c](OpBuilder& b) { return b.m.matmul(b.arg("a", c.a), b.arg("b", c.b), c.trans_a, c.trans_b); },
          .predict = [c](const Values& v) { return matmul(v.at("a"), v.at("b"), c.trans_a, c.trans_b); }};
}

TEST(OpMatmul, TwoMatrices) {
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true})
      check_op(matmul_case({trans_a ? Dims{7, 5} : Dims{5, 7}, trans_b ? Dims{3, 7} : Dims{7, 3}, trans_a, trans_b}));
}

TEST(OpMatmul, Batches) {
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true}) {
      check_op(matmul_case(
          {trans_a ? Dims{3, 7, 5} : Dims{3, 5, 7}, trans_b ? Dims{3, 4, 7} : Dims{3, 7, 4}, trans_a, trans_b}));
      check_op(matmul_case({trans_a ? Dims{2, 3, 6, 1} : Dims{2, 3, 1, 6},
                            trans_b ? Dims{2, 3, 17, 6} : Dims{2, 3, 6, 17}, trans_a, trans_b}));
    }
}

TEST(OpMatmul, OneMatrixForAllBatches) {
  check_op(matmul_case({{3, 5, 7}, {7, 4}, false, false}));
  check_op(matmul_case({{3, 5, 7}, {4, 7}, false, true}));
  check_op(matmul_case({{2, 3, 4, 9}, {9, 11}, false, false}));
}

TEST(OpMatmul, Bf16) {
  check_op_bf16(matmul_case({{3, 9, 16}, {3, 16, 5}, false, false}));
  check_op_bf16(matmul_case({{3, 16, 9}, {3, 5, 16}, true, true}));
  check_op_bf16(matmul_case({{3, 9, 16}, {5, 16}, false, true}));
}

struct AttentionCase {
  std::int64_t batch, queries, keys, width;
  Attention options;
  bool packed = false, masked = false;
};

// The first key is always seen, so that every query sees one.
double mask_value(std::size_t i, std::int64_t keys) {
  return static_cast<std::int64_t>(i) % keys == 0 || (i * 2654435761u >> 7) % 3 != 0 ? 1 : 0;
}

OpCase attention_case(const AttentionCase& c) {
  OpCase op{.batch = c.batch,
            .build =
                [c](OpBuilder& b) {
                  std::optional<Value> mask;
                  if (c.masked) mask = b.m.mask({c.keys});
                  if (c.packed) return b.m.attention(b.arg("qkv", {c.batch, c.queries, 3 * c.width}), c.options, mask);
                  const Value q = b.arg("q", {c.batch, c.queries, c.width});
                  const Value k = b.arg("k", {c.batch, c.keys, c.width});
                  return b.m.attention(q, k, b.arg("v", {c.batch, c.keys, c.width}), c.options, mask);
                },
            .predict =
                [c](const Values& v) {
                  const Tensor* mask = c.masked ? &v.at("mask") : nullptr;
                  if (!c.packed) return attention(v.at("q"), v.at("k"), v.at("v"), c.options, mask);
                  const auto part = [&](std::int64_t i) {
                    return slice(v.at("qkv"), 2, i * c.width, (i + 1) * c.width);
                  };
                  return attention(part(0), part(1), part(2), c.options, mask);
                }};
  if (c.masked) op.fill["mask"] = [keys = c.keys](std::size_t i) { return mask_value(i, keys); };
  return op;
}

TEST(OpAttention, Unpacked) {
  check_op(attention_case({2, 5, 5, 8, {.heads = 2}}));
  check_op(attention_case({3, 4, 7, 6, {.heads = 1}}));
  check_op(attention_case({2, 1, 33, 10, {.heads = 5, .scale = 0.7}}));
}

TEST(OpAttention, Packed) {
  check_op(attention_case({2, 6, 6, 12, {.heads = 3}, true}));
  check_op(attention_case({5, 17, 17, 4, {.heads = 4}, true}));
}

TEST(OpAttention, Causal) {
  check_op(attention_case({2, 9, 9, 8, {.heads = 2, .causal = true}, true}));
  check_op(attention_case({3, 7, 7, 6, {.heads = 3, .causal = true}}));
  check_op(attention_case({2, 3, 8, 6, {.heads = 3, .causal = true}}));
}

TEST(OpAttention, LongerThanABlock) { check_op(attention_case({1, 130, 130, 4, {.heads = 2, .causal = true}, true})); }

TEST(OpAttention, Masked) {
  check_op(attention_case({3, 5, 7, 8, {.heads = 2}, false, true}));
  check_op(attention_case({3, 7, 7, 8, {.heads = 4, .causal = true}, true, true}));
}

TEST(OpAttention, Bf16) {
  check_op_bf16(attention_case({2, 9, 9, 16, {.heads = 2, .causal = true}, true}));
  check_op_bf16(attention_case({2, 5, 7, 16, {.heads = 4}, false, true}));
}

// The gradient of a query alone: keys and values come from the host.
TEST(OpAttention, OnlyTheQueryIsTrained) {
  const Attention options{.heads = 2};
  check_op({.batch = 2,
            .build =
                [=](OpBuilder& b) {
                  const Value k = b.m.input({4, 6}, "k"), v = b.m.input({4, 6}, "v");
                  return b.m.attention(b.arg("q", {2, 3, 6}), k, v, options);
                },
            .predict = [=](const Values& v) { return attention(v.at("q"), v.at("k"), v.at("v"), options, nullptr); }});
}

OpCase embedding_case(std::int64_t batch, std::int64_t length, std::int64_t vocabulary, std::int64_t width) {
  return {.batch = batch,
          .build = [=](OpBuilder& b) { return b.m.embedding(b.m.tokens({length}), vocabulary, width, 1.0, "table"); },
          .predict = [](const Values& v) { return embedding(v.at("tokens"), v.at("table.weight")); },
          .ids = vocabulary};
}

TEST(OpEmbedding, RepeatedAndUnusedRows) {
  check_op(embedding_case(3, 7, 5, 4));
  check_op(embedding_case(2, 3, 50, 9));
  check_op(embedding_case(7, 100, 3, 33));
}

// As a function of the table, the padding row is a constant: it stays what it was at first.
TEST(OpEmbedding, APaddingRowIsNotTrained) {
  const auto first = [](std::size_t i) { return 0.25 * static_cast<double>(i % 7) - 0.5; };
  OpCase c = embedding_case(3, 7, 5, 4);
  c.build = [](OpBuilder& b) {
    const Value table = b.m.parameter({5, 4}, {}, "table.weight");
    const Attrs attrs{{"vocabulary", std::int64_t{5}}, {"width", std::int64_t{4}}, {"padding", std::int64_t{2}}};
    return b.m.layer(Op::embedding, {b.m.tokens({7})}, attrs, "table", {{.shared = table}});
  };
  c.fill = {{"table.weight", first}};
  c.predict = [=](const Values& v) {
    Tensor table = v.at("table.weight");
    for (std::size_t i = 8; i < 12; ++i) table.v[i] = first(i);
    return embedding(v.at("tokens"), table);
  };
  check_op(c);
}

TEST(OpEmbedding, Bf16) { check_op_bf16(embedding_case(3, 7, 5, 16)); }

// One weight as an embedding and as the output layer: two gradients of one tensor.
OpCase tied_case() {
  return {.batch = 3,
          .build =
              [](OpBuilder& b) {
                const Value x = b.m.embedding(b.m.tokens({5}), 11, 6, 1.0, "wte");
                return b.m.linear(b.m.activation(x, "tanh"), b.m.parameter("wte.weight"), {}, "head");
              },
          .predict =
              [](const Values& v) {
                const Tensor x = embedding(v.at("tokens"), v.at("wte.weight"));
                return linear(activation("tanh", x), v.at("wte.weight"), nullptr);
              },
          .ids = 11};
}

TEST(OpTiedWeights, BothUsesCount) { check_op(tied_case()); }
TEST(OpTiedWeights, Bf16) { check_op_bf16(tied_case()); }

TEST(OpTiedWeights, ThreeLayersOnOneWeight) {
  check_op({.batch = 4,
            .build =
                [](OpBuilder& b) {
                  Value x = b.m.linear(b.arg("x", {4, 7}), {.out = 7, .bias = false}, "fc");
                  x = b.m.linear(b.m.activation(x, "tanh"), b.m.parameter("fc.weight"), {}, "fc2");
                  return b.m.linear(b.m.activation(x, "sigmoid"), b.m.parameter("fc.weight"), {}, "fc3");
                },
            .predict =
                [](const Values& v) {
                  const Tensor& w = v.at("fc.weight");
                  const Tensor x = activation("tanh", linear(v.at("x"), w, nullptr));
                  return linear(activation("sigmoid", linear(x, w, nullptr)), w, nullptr);
                }});
}

// One linear layer with its bias, used twice.
OpCase tied_with_bias() {
  return {.batch = 4,
          .build =
              [](OpBuilder& b) {
                const Value w = b.m.parameter({8, 8}, {}, "w"), bias = b.m.parameter({8}, {}, "b");
                const auto layer = [&](Value x, const char* name) {
                  return b.m.layer(Op::linear, {x}, {{"out", std::int64_t{8}}, {"bias", std::int64_t{1}}}, name,
                                   {{.shared = w}, {.shared = bias}});
                };
                return layer(b.m.activation(layer(b.arg("x", {4, 8}), "first"), "tanh"), "second");
              },
          .predict =
              [](const Values& v) {
                const Tensor &w = v.at("w"), &bias = v.at("b");
                return linear(activation("tanh", linear(v.at("x"), w, &bias)), w, &bias);
              }};
}

TEST(OpTiedWeights, BiasToo) { check_op(tied_with_bias()); }
TEST(OpTiedWeights, BiasTooInBf16) { check_op_bf16(tied_with_bias()); }

}  // namespace
}  // namespace overtake::reference
