// What passes make of several tasks: chains of elementwise ones, and products of transposed factors.

#include "op_case.h"

namespace overtake::reference {
namespace {

// The same expression as a model and as numbers.
struct InModel {
  using Operand = Value;
  OpBuilder& b;
  Value arg(const std::string& name, const Dims& dims) const { return b.arg(name, dims); }
  Value weight(const std::string& name, const Dims& dims) const { return b.m.parameter(dims, {}, name); }
  Value constant(const Tensor& t) const {
    const std::vector<float> values(t.v.begin(), t.v.end());
    return b.m.constant(Shape(t.dims), values, "constant");
  }
  Value add(Value x, Value y) const { return b.m.add(x, y); }
  Value mul(Value x, Value y) const { return b.m.mul(x, y); }
  Value function(const std::string& name, Value x) const { return b.m.activation(x, name); }
  Value clip(Value x, double low, double high) const { return b.m.clip(x, low, high); }
};

struct InNumbers {
  using Operand = Tensor;
  const Values& v;
  Tensor arg(const std::string& name, const Dims&) const { return v.at(name); }
  Tensor weight(const std::string& name, const Dims&) const { return v.at(name); }
  Tensor constant(const Tensor& t) const { return t; }
  Tensor add(const Tensor& x, const Tensor& y) const { return reference::add(x, y); }
  Tensor mul(const Tensor& x, const Tensor& y) const { return reference::mul(x, y); }
  Tensor function(const std::string& name, Tensor x) const {
    if (name != "erf") return activation(name, x);
    for (double& value : x.v) value = std::erf(value);
    return x;
  }
  Tensor clip(Tensor x, double low, double high) const {
    for (double& value : x.v) value = std::clamp(value, low, high);
    return x;
  }
};

template <class Kit>
auto number(const Kit& kit, double value) {
  Tensor t(Dims{1});
  t.v[0] = static_cast<double>(static_cast<float>(value));
  return kit.constant(t);
}

template <class Expression>
OpCase chain_case(const Dims& x, Expression expression) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return expression(InModel{b}, x); },
          .predict = [=](const Values& v) { return expression(InNumbers{v}, x); },
          .tolerance = 2e-5,
          .skip = {"recognise"}};
}

// Against the reference, and bit by bit against the tasks one by one; `tasks` is how many chains the step has.
void check_chain(const OpCase& c, std::size_t tasks) {
  check_op(c);
  const Values values = random_values(c, kFloatGrid);
  OpCase apart = c;
  apart.skip.insert("fuse_elementwise");
  const OpRun fused = run_case(c, values, {.parts = 2}), plain = run_case(apart, values, {.parts = 2});
  EXPECT_EQ(fused.tasks.contains(Op::chain) ? fused.tasks.at(Op::chain) : 0, tasks);
  EXPECT_FALSE(plain.tasks.contains(Op::chain));
  if (test_device() != "cpu") return;
  EXPECT_EQ(fused.prediction.v, plain.prediction.v);
  for (const auto& [name, gradient] : plain.gradients) EXPECT_EQ(fused.gradients.at(name).v, gradient.v) << name;
}

const auto kQuickGelu = [](const auto& kit, const Dims& dims) {
  const auto x = kit.arg("x", dims);
  return kit.mul(x, kit.function("sigmoid", kit.mul(x, number(kit, 1.702))));
};

const auto kGelu = [](const auto& kit, const Dims& dims) {
  const auto x = kit.arg("x", dims);
  const auto gate = kit.add(number(kit, 1), kit.function("erf", kit.mul(x, number(kit, 0.70710678))));
  return kit.mul(kit.mul(x, gate), number(kit, 0.5));
};

const auto kHardSwish = [](const auto& kit, const Dims& dims) {
  const auto x = kit.arg("x", dims);
  return kit.mul(kit.mul(kit.clip(kit.add(x, number(kit, 3.0)), 2.5, 3.5), number(kit, 1.0 / 6)), x);
};

const auto kTree = [](const auto& kit, const Dims& dims) {
  const auto a = kit.arg("a", dims), b = kit.arg("b", dims), c = kit.arg("c", dims);
  return kit.mul(kit.function("tanh", kit.add(kit.mul(a, b), c)), kit.add(kit.function("silu", a), a));
};

TEST(OpChain, Formulas) {
  for (const Dims& x : {Dims{3, 41}, Dims{2, 3, 5, 7}, Dims{1, 1}, Dims{3, 7001}}) {
    check_chain(chain_case(x, kQuickGelu), 2);
    check_chain(chain_case(x, kGelu), 2);
    check_chain(chain_case(x, kHardSwish), 2);
    check_chain(chain_case(x, kTree), 2);
  }
}

// Every function in the middle, and at the end, where its derivative may come from the result.
TEST(OpChain, Functions) {
  for (const char* function : {"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "hard_swish", "hard_sigmoid"}) {
    SCOPED_TRACE(function);
    check_chain(chain_case({3, 41},
                           [=](const auto& kit, const Dims& dims) {
                             const auto a = kit.arg("a", dims), b = kit.arg("b", dims);
                             return kit.mul(kit.function(function, kit.add(a, b)), b);
                           }),
                2);
    check_chain(chain_case({3, 41},
                           [=](const auto& kit, const Dims& dims) {
                             return kit.function(function, kit.add(kit.arg("a", dims), kit.arg("b", dims)));
                           }),
                2);
  }
}

// Only adds: gradients pass through, so there is one chain.
TEST(OpChain, Sums) {
  check_chain(chain_case({3, 41},
                         [](const auto& kit, const Dims& dims) {
                           return kit.add(kit.add(kit.arg("a", dims), kit.arg("b", dims)), kit.arg("c", dims));
                         }),
              1);
}

OpCase broadcast_case(const Dims& x, const Dims& constant) {
  return chain_case(x, [constant](const auto& kit, const Dims& dims) {
    const auto scaled = kit.mul(kit.arg("x", dims), kit.constant(fixed_tensor(constant)));
    return kit.function("gelu", kit.add(scaled, kit.arg("y", dims)));
  });
}

TEST(OpChain, ConstantsAreBroadcast) {
  for (const Dims& constant : {Dims{1}, Dims{7}, Dims{5, 1}, Dims{5, 7}, Dims{3, 1, 1}, Dims{3, 5, 1}, Dims{1, 5, 7}})
    check_chain(broadcast_case({3, 5, 7}, constant), 2);
  check_chain(broadcast_case({3, 700, 9}, {9}), 2);
  for (const Dims& constant : {Dims{6, 1, 1}, Dims{1, 6, 1, 1}, Dims{2, 1, 1, 1}, Dims{5}, Dims{4, 5}, Dims{1, 1, 4, 5},
                               Dims{6, 4, 5}, Dims{1, 6, 4, 5}})
    check_chain(broadcast_case({2, 6, 4, 5}, constant), 2);
}

// A weight per channel before a residual, as in LayerScale: its gradient is summed by a task of its own.
TEST(OpChain, TrainedScale) {
  for (const Dims& scale : {Dims{6, 1, 1}, Dims{1, 6, 1, 1}, Dims{5}, Dims{1}})
    check_chain(chain_case({2, 6, 4, 5},
                           [scale](const auto& kit, const Dims& dims) {
                             const auto scaled = kit.mul(kit.weight("gamma", scale), kit.arg("x", dims));
                             return kit.add(kit.add(scaled, kit.weight("beta", scale)), kit.arg("y", dims));
                           }),
                2);
}

// Constants that channels-last images would tear apart, and ones that do not repeat evenly, stay outside, and so does a
// trained scale behind which more comes than adds.
TEST(OpChain, WhatIsNotFused) {
  const OpCase image = broadcast_case({2, 6, 4, 5}, {6, 4, 1});
  EXPECT_EQ(run_case(image, random_values(image, kFloatGrid), {}).tasks.at(Op::mul), 2u);
  const OpCase uneven = broadcast_case({3, 5, 7}, {3, 1, 7});
  EXPECT_EQ(run_case(uneven, random_values(uneven, kFloatGrid), {}).tasks.at(Op::mul), 2u);
  const OpCase scale = chain_case({3, 41}, [](const auto& kit, const Dims& dims) {
    return kit.function("tanh", kit.mul(kit.arg("x", dims), kit.weight("gamma", {41})));
  });
  EXPECT_EQ(run_case(scale, random_values(scale, kFloatGrid), {}).tasks.at(Op::mul), 3u);
  check_op(image);
  check_op(uneven);
  check_op(scale);
  // A value that somebody else reads too.
  check_chain(chain_case({3, 41},
                         [](const auto& kit, const Dims& dims) {
                           const auto s = kit.add(kit.arg("a", dims), kit.arg("b", dims));
                           return kit.mul(kit.mul(s, s), kit.function("tanh", s));
                         }),
              2);
}

// Channels-last images, with a number per channel.
TEST(OpChain, BehindAConvolution) {
  const Conv2d o{.out = 33, .kernel = 1};
  OpCase c{.batch = 3,
           .build =
               [=](OpBuilder& b) {
                 const Value y = b.m.conv2d(b.arg("x", {3, 2, 4, 5}), o, "conv");
                 const InModel kit{b};
                 return kit.mul(kit.function("silu", kit.mul(y, kit.constant(fixed_tensor({33, 1, 1})))), y);
               },
           .predict =
               [=](const Values& v) {
                 const Tensor y = conv2d(v.at("x"), v.at("conv.weight"), &v.at("conv.bias"), o);
                 return mul(activation("silu", mul(y, fixed_tensor({33, 1, 1}))), y);
               },
           .tolerance = 2e-5,
           .skip = {"recognise"}};
  check_chain(c, 2);
}

// More operands than a chain takes: several chains.
TEST(OpChain, ManyOperands) {
  check_op(chain_case({3, 11}, [](const auto& kit, const Dims& dims) {
    auto sum = kit.arg("a0", dims);
    for (int i = 1; i < 20; ++i)
      sum = kit.function("tanh", kit.add(kit.mul(sum, kit.arg(fmt::format("a{}", i), dims)), sum));
    return sum;
  }));
}

TEST(OpChain, Bf16) {
  check_op_bf16(chain_case({3, 41}, kQuickGelu));
  check_op_bf16(chain_case({3, 41}, kTree));
  check_op_bf16(broadcast_case({3, 5, 7}, {5, 1}));
  check_op_bf16(broadcast_case({2, 6, 4, 5}, {6, 1, 1}));
}

struct ProductCase {
  Dims a, b;  // as they are given
  Dims order_a = {}, order_b = {}, order_c = {};
  bool trans_a = false, trans_b = false;
};

OpCase product_case(const ProductCase& c) {
  return {.batch = c.a[0],
          .build =
              [=](OpBuilder& builder) {
                Model& m = builder.m;
                const auto moved = [&](Value x, const Dims& order) {
                  return order.empty() ? x : m.transpose(x, order);
                };
                const Value a = moved(builder.arg("a", c.a), c.order_a), b = moved(builder.arg("b", c.b), c.order_b);
                return moved(m.matmul(a, b, c.trans_a, c.trans_b), c.order_c);
              },
          .predict =
              [=](const Values& v) {
                const auto moved = [&](const Tensor& x, const Dims& order) {
                  return order.empty() ? x : transpose(x, order);
                };
                return moved(matmul(moved(v.at("a"), c.order_a), moved(v.at("b"), c.order_b), c.trans_a, c.trans_b),
                             c.order_c);
              },
          .tolerance = 2e-5};
}

// Against the reference, and bit by bit against transposes of their own; `transposes` of them are left.
void check_product(const ProductCase& product, std::size_t transposes = 0) {
  const OpCase c = product_case(product);
  check_op(c);
  const Values values = random_values(c, kFloatGrid);
  OpCase apart = c;
  apart.skip.insert("fold_transposes");
  const OpRun folded = run_case(c, values, {.parts = 2}), plain = run_case(apart, values, {.parts = 2});
  EXPECT_TRUE(plain.tasks.contains(Op::transpose));
  if (test_device() != "cpu") return;  // other devices leave more of them
  EXPECT_EQ(folded.tasks.contains(Op::transpose) ? folded.tasks.at(Op::transpose) : 0, transposes);
  EXPECT_EQ(folded.prediction.v, plain.prediction.v);
  for (const auto& [name, gradient] : plain.gradients) EXPECT_EQ(folded.gradients.at(name).v, gradient.v) << name;
}

TEST(OpMatmulOfTransposes, RowsAndColumns) {
  for (const bool trans : {false, true}) {
    check_product({.a = trans ? Dims{5, 7} : Dims{7, 5}, .b = {7, 3}, .order_a = {1, 0}, .trans_a = trans});
    check_product({.a = {5, 7}, .b = trans ? Dims{7, 3} : Dims{3, 7}, .order_b = {1, 0}, .trans_b = trans});
    check_product({.a = {2, 3, 5, 7},
                   .b = trans ? Dims{2, 3, 7, 4} : Dims{2, 3, 4, 7},
                   .order_b = {0, 1, 3, 2},
                   .trans_b = trans});
  }
  check_product({.a = {3, 5, 7}, .b = {4, 7}, .order_b = {1, 0}});  // one matrix for all batches
}

// [B, S, H, D] -> [B, H, S, D], as attention that is not recognised has it: keys, queries, values and what comes out.
TEST(OpMatmulOfTransposes, Heads) {
  check_product({.a = {2, 5, 3, 8}, .b = {2, 3, 8, 6}, .order_a = {0, 2, 1, 3}});
  check_product({.a = {2, 3, 5, 8}, .b = {2, 6, 3, 8}, .order_b = {0, 2, 3, 1}});
  check_product({.a = {2, 5, 3, 8}, .b = {2, 6, 3, 8}, .order_a = {0, 2, 1, 3}, .order_b = {0, 2, 3, 1}});
  check_product({.a = {2, 3, 5, 6}, .b = {2, 3, 6, 8}, .order_c = {0, 2, 1, 3}});
  check_product({.a = {2, 5, 3, 6},
                 .b = {2, 6, 3, 8},
                 .order_a = {0, 2, 1, 3},
                 .order_b = {0, 2, 1, 3},
                 .order_c = {0, 2, 1, 3}});
  // [S, B, D] -> [B, S, D]: one stride over the batch, which every device takes.
  check_product({.a = {5, 4, 16}, .b = {6, 4, 16}, .order_a = {1, 0, 2}, .order_b = {1, 2, 0}});
  check_product({.a = {7, 2, 5}, .b = {2, 7, 3}, .order_a = {1, 2, 0}});
}

// Where the last dimension is no longer one of rows or columns, or batches walk through memory in three ways.
TEST(OpMatmulOfTransposes, WhatIsNotFolded) {
  check_product({.a = {5, 7, 2}, .b = {2, 7, 3}, .order_a = {2, 0, 1}}, 2);
  check_product({.a = {2, 3, 4, 5, 6}, .b = {4, 3, 2, 6, 3}, .order_a = {2, 1, 0, 3, 4}}, 2);
  check_product({.a = {7, 5}, .b = {5, 3}, .order_c = {1, 0}}, 2);
}

TEST(OpMatmulOfTransposes, Bf16) {
  check_op_bf16(product_case({.a = {2, 5, 3, 8}, .b = {2, 6, 3, 8}, .order_a = {0, 2, 1, 3}, .order_b = {0, 2, 3, 1}}));
  check_op_bf16(product_case({.a = {5, 4, 16}, .b = {6, 4, 16}, .order_a = {1, 0, 2}, .order_b = {1, 2, 0}}));
}

}  // namespace
}  // namespace overtake::reference
