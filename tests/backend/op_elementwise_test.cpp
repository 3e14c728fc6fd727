// Activations, add, mul, softmax, layer norm, dropout, and sums over a fan-out.

#include "op_case.h"

namespace overtake::reference {
namespace {

const char* const kActivations[] = {"relu",    "gelu", "gelu_tanh",  "silu",
                                    "sigmoid", "tanh", "hard_swish", "hard_sigmoid"};

// Values beyond both kinks of the hard functions, which are at 3 and -3.
double wide_value(std::size_t i) {
  return static_cast<double>(static_cast<std::int64_t>((i * 29 + 50) % 127) - 63) * 0.0703;
}

OpCase activation_case(const std::string& function, const Dims& x) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return b.m.activation(b.arg("x", x), function); },
          .predict = [=](const Values& v) { return activation(function, v.at("x")); },
          .fill = {{"x", [](std::size_t i) { return static_cast<double>(static_cast<float>(wide_value(i) + 1e-3)); }}}};
}

TEST(OpActivation, AllFunctions) {
  for (const char* function : kActivations) {
    SCOPED_TRACE(function);
    for (const Dims& x : {Dims{3, 41}, Dims{2, 3, 5, 7}, Dims{1, 1}}) {
      OpCase c = activation_case(function, x);
      c.tolerance = 2e-5;  // x itself is rounded where a shift is taken off it
      check_op(c);
    }
  }
}

// Larger than a part, and a rank-4 activation behind a convolution, which is channels-last and computed in place.
TEST(OpActivation, BehindAConvolution) {
  const Conv2d o{.out = 33, .kernel = 1};
  for (const char* function : kActivations) {
    SCOPED_TRACE(function);
    check_op({.batch = 3,
              .build =
                  [=](OpBuilder& b) {
                    return b.m.activation(b.m.conv2d(b.arg("x", {3, 2, 4, 5}), o, "conv"), function);
                  },
              .predict =
                  [=](const Values& v) {
                    return activation(function, conv2d(v.at("x"), v.at("conv.weight"), &v.at("conv.bias"), o));
                  },
              .tolerance = 2e-5});
  }
}

TEST(OpActivation, ManyBlocks) {
  check_op({.batch = 5,
            .build =
                [](OpBuilder& b) {
                  return b.m.activation(b.arg("x", {5, 7001}), "gelu");
                },
            .predict = [](const Values& v) { return activation("gelu", v.at("x")); }});
}

TEST(OpActivation, Bf16) {
  for (const char* function : {"relu", "gelu", "silu", "tanh"})
    check_op_bf16({.batch = 3,
                   .build =
                       [=](OpBuilder& b) {
                         return b.m.activation(b.arg("x", {3, 41}), function);
                       },
                   .predict = [=](const Values& v) { return activation(function, v.at("x")); }});
}

struct Broadcast {
  Dims a, b;
};
const std::vector<Broadcast> kBroadcasts = {{{3, 5}, {3, 5}},
                                            {{3, 5}, {5}},
                                            {{3, 5}, {3, 1}},
                                            {{3, 1}, {1, 5}},
                                            {{5}, {3, 5}},
                                            {{2, 3, 4}, {3, 1}},
                                            {{2, 3, 4}, {1}},
                                            {{2, 3, 4}, {2, 1, 4}},
                                            {{2, 3, 4}, {1, 1, 1}},
                                            {{3, 700, 9}, {9}},
                                            {{3, 700, 9}, {700, 9}},
                                            {{2, 1, 3, 1}, {5, 1, 4}},
                                            {{2, 3, 4, 5}, {2, 3, 4, 5}}};
// With images: an excitation per channel, a bias per channel, per row and per column, one number.
const std::vector<Broadcast> kImageBroadcasts = {
    {{2, 6, 4, 5}, {2, 6, 1, 1}}, {{2, 6, 1, 1}, {2, 6, 4, 5}}, {{3, 6, 4, 5}, {6, 1, 1}},
    {{3, 6, 4, 5}, {1, 6, 1, 1}}, {{2, 6, 4, 5}, {2, 1, 4, 5}}, {{2, 6, 4, 5}, {5}},
    {{2, 6, 4, 5}, {4, 1}},       {{2, 6, 4, 5}, {1}},          {{2, 17, 9, 9}, {2, 17, 1, 1}},
    {{2, 6, 4, 5}, {6, 4, 5}},    {{2, 6, 4, 5}, {1, 4, 5}}};

OpCase binary_case(const Broadcast& c, bool is_mul) {
  return {.batch = c.a[0],
          .build =
              [=](OpBuilder& b) {
                const Value x = b.arg("a", c.a), y = b.arg("b", c.b);
                return is_mul ? b.m.mul(x, y) : b.m.add(x, y);
              },
          .predict = [=](const Values& v) { return is_mul ? mul(v.at("a"), v.at("b")) : add(v.at("a"), v.at("b")); }};
}

TEST(OpAdd, Broadcasts) {
  for (const auto& list : {kBroadcasts, kImageBroadcasts})
    for (const Broadcast& c : list) check_op(binary_case(c, false));
}

TEST(OpMul, Broadcasts) {
  for (const auto& list : {kBroadcasts, kImageBroadcasts})
    for (const Broadcast& c : list) check_op(binary_case(c, true));
}

TEST(OpBinary, Bf16) {
  for (const bool is_mul : {false, true}) {
    check_op_bf16(binary_case({{3, 5}, {3, 5}}, is_mul));
    check_op_bf16(binary_case({{3, 5}, {5}}, is_mul));
    check_op_bf16(binary_case({{2, 6, 4, 5}, {2, 6, 1, 1}}, is_mul));
  }
}

// Channels-last images from a convolution times an excitation computed from them, as in squeeze-and-excitation.
TEST(OpMul, SqueezeAndExcitation) {
  const Conv2d o{.out = 6, .kernel = 3, .padding = 1};
  check_op({.batch = 3,
            .build =
                [=](OpBuilder& b) {
                  const Value y = b.m.conv2d(b.arg("x", {3, 2, 5, 4}), o, "conv");
                  const Value s = b.m.activation(b.m.linear(b.m.global_pool(y), {.out = 6}, "fc"), "sigmoid");
                  return b.m.mul(y, b.m.reshape(s, {3, 6, 1, 1}));
                },
            .predict =
                [=](const Values& v) {
                  const Tensor y = conv2d(v.at("x"), v.at("conv.weight"), &v.at("conv.bias"), o);
                  const Tensor s = activation("sigmoid", linear(global_pool(y), v.at("fc.weight"), &v.at("fc.bias")));
                  return mul(y, reshape(s, {3, 6, 1, 1}));
                },
            .tolerance = 2e-5});
}

TEST(OpBinary, AValueWithItself) {
  check_op({.batch = 3,
            .build =
                [](OpBuilder& b) {
                  const Value x = b.arg("x", {3, 7});
                  return b.m.add(b.m.mul(x, x), b.m.add(x, x));
                },
            .predict =
                [](const Values& v) {
                  const Tensor& x = v.at("x");
                  return add(mul(x, x), add(x, x));
                }});
}

OpCase softmax_case(const Dims& x, std::int64_t axis) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return b.m.softmax(b.arg("x", x), axis); },
          .predict = [=](const Values& v) { return softmax(v.at("x"), axis); }};
}

TEST(OpSoftmax, EveryAxis) {
  for (const Dims& x : {Dims{3, 17}, Dims{2, 5, 7}, Dims{2, 3, 4, 5}, Dims{2, 20, 3, 1}})
    for (std::size_t axis = 0; axis < x.size(); ++axis) check_op(softmax_case(x, static_cast<std::int64_t>(axis)));
}
TEST(OpSoftmax, Bf16) { check_op_bf16(softmax_case({3, 17}, 1)); }

OpCase layer_norm_case(const Dims& x, double eps = 1e-5) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return b.m.layer_norm(b.arg("x", x), {.eps = eps}, "ln"); },
          .predict = [=](const Values& v) { return layer_norm(v.at("x"), v.at("ln.weight"), v.at("ln.bias"), eps); },
          .tolerance = 2e-5};
}

TEST(OpLayerNorm, Shapes) {
  for (const Dims& x : {Dims{5, 7}, Dims{2, 3, 33}, Dims{2, 2, 3, 5}, Dims{300, 9}}) check_op(layer_norm_case(x));
  check_op(layer_norm_case({5, 7}, 0.3));
}
TEST(OpLayerNorm, Bf16) { check_op_bf16(layer_norm_case({6, 32})); }

// One value used many times: its gradients are added up.
TEST(OpFanOut, ManyUses) {
  for (const int uses : {2, 3, 4, 9}) {
    SCOPED_TRACE(uses);
    check_op({.batch = 3,
              .build =
                  [=](OpBuilder& b) {
                    const Value x = b.m.activation(b.arg("x", {3, 11}), "tanh");
                    Value sum = b.m.activation(x, "sigmoid");
                    for (int i = 1; i < uses; ++i)
                      sum = b.m.add(sum, b.m.mul(b.m.activation(x, i % 2 == 0 ? "gelu" : "silu"), x));
                    return sum;
                  },
              .predict =
                  [=](const Values& v) {
                    const Tensor x = activation("tanh", v.at("x"));
                    Tensor sum = activation("sigmoid", x);
                    for (int i = 1; i < uses; ++i) sum = add(sum, mul(activation(i % 2 == 0 ? "gelu" : "silu", x), x));
                    return sum;
                  },
              .tolerance = 2e-5});
  }
}

// More uses than a byte counts.
TEST(OpFanOut, ThreeHundredUses) {
  check_op({.batch = 2,
            .build =
                [](OpBuilder& b) {
                  const Value x = b.m.activation(b.arg("x", {2, 3}), "tanh");
                  std::vector<Value> all;
                  for (int i = 0; i < 300; ++i) all.push_back(b.m.activation(x, "sigmoid"));
                  return b.m.concat(all, 1);
                },
            .predict =
                [](const Values& v) {
                  return concat(std::vector<Tensor>(300, activation("sigmoid", activation("tanh", v.at("x")))), 1);
                }});
}

// A channels-last fan-out.
TEST(OpFanOut, Images) {
  const Conv2d o{.out = 5, .kernel = 1};
  check_op({.batch = 2,
            .build =
                [=](OpBuilder& b) {
                  const Value x = b.m.conv2d(b.arg("x", {2, 3, 4, 3}), o, "conv");
                  return b.m.add(b.m.add(b.m.gelu(x), b.m.mul(x, x)), x);
                },
            .predict =
                [=](const Values& v) {
                  const Tensor x = conv2d(v.at("x"), v.at("conv.weight"), &v.at("conv.bias"), o);
                  return add(add(activation("gelu", x), mul(x, x)), x);
                },
            .tolerance = 2e-5});
}

struct DropoutRun {
  Tensor y, gradient;
  double loss = 0, evaluated = 0;
};

// `steps` steps at learning rate 0, and the last one's results.
DropoutRun run_dropout(const Dims& dims, double p, const Values& values, std::uint64_t seed, int steps) {
  OpCase c{
      .batch = dims[0], .build = [=](OpBuilder& b) { return b.m.dropout(b.arg("x", dims), p, "drop"); }, .predict = {}};
  RunSetup options = setup_of({.parts = 2}, "drop");
  options.spec.seed = seed;
  TrainingRun training = run_of(build_case(c, false).graph, options);
  write_values(training, values);
  DropoutRun run;
  for (int i = 0; i < steps; ++i) run.loss = static_cast<double>(training.step(0.0f).loss);
  const Graph& g = training.graph();
  run.y = read_tensor(training.executor(), find_buffer(g, "drop"));
  run.gradient = read_tensor(training.executor(), g.parameters[0].gradient);
  run.evaluated = static_cast<double>(training.evaluate().loss);
  return run;
}

TEST(OpDropout, ValuesMaskAndGradient) {
  const Dims dims = {3, 1111};
  OpCase c{.batch = 3, .build = [=](OpBuilder& b) { return b.m.dropout(b.arg("x", dims), 0.5); }, .predict = {}};
  const Values values = random_values(c, kFloatGrid);
  const Tensor &x = values.at("x"), &target = values.at("targets");
  const auto n = static_cast<double>(x.v.size());
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    SCOPED_TRACE(p);
    const DropoutRun run = run_dropout(dims, p, values, 5, 1);
    double kept = 0;
    for (std::size_t i = 0; i < x.v.size(); ++i) {
      const bool is_kept = run.y.v[i] != 0;
      kept += is_kept ? 1 : 0;
      const double y = is_kept ? x.v[i] / (1 - p) : 0, slope = is_kept ? 1 / (1 - p) : 0;
      ASSERT_NEAR(run.y.v[i], y, 1e-6 * std::fabs(y)) << i;
      const double gradient = 2 * (y - target.v[i]) / n * slope;
      ASSERT_NEAR(run.gradient.v[i], gradient, 1e-6 / (n * (1 - p) * (1 - p))) << i;
    }
    EXPECT_NEAR(kept / n, 1 - p, 4 * std::sqrt(p * (1 - p) / n) + 1e-12);
    EXPECT_NEAR(run.loss, mean_squared_error(run.y, target), 1e-5 * run.loss);
    EXPECT_NEAR(run.evaluated, mean_squared_error(x, target), 1e-5);
  }
}

TEST(OpDropout, MasksDifferByStepAndSeed) {
  const Dims dims = {3, 400};
  OpCase c{.batch = 3, .build = [=](OpBuilder& b) { return b.m.dropout(b.arg("x", dims), 0.5); }, .predict = {}};
  const Values values = random_values(c, kFloatGrid);
  const auto agreement = [&](const Tensor& a, const Tensor& b) {
    double same = 0;
    for (std::size_t i = 0; i < a.v.size(); ++i) same += (a.v[i] == 0) == (b.v[i] == 0) ? 1 : 0;
    return same / static_cast<double>(a.v.size());
  };
  const Tensor first = run_dropout(dims, 0.5, values, 1, 1).y;
  EXPECT_EQ(agreement(first, run_dropout(dims, 0.5, values, 1, 1).y), 1.0);
  EXPECT_NEAR(agreement(first, run_dropout(dims, 0.5, values, 1, 2).y), 0.5, 0.08);
  EXPECT_NEAR(agreement(first, run_dropout(dims, 0.5, values, 2, 1).y), 0.5, 0.08);
}

TEST(OpDropout, TwoLayersHaveTheirOwnMasks) {
  OpCase c{.batch = 4,
           .build =
               [](OpBuilder& b) {
                 const Value x = b.arg("x", {4, 500});
                 return b.m.concat({b.m.dropout(x, 0.5), b.m.dropout(x, 0.5)}, 1);
               },
           .predict = {}};
  const Tensor y = run_case(c, random_values(c, kFloatGrid), {.parts = 2}).prediction;
  double same = 0;
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 500; ++j) same += (y(i, j) == 0) == (y(i, j + 500) == 0) ? 1 : 0;
  EXPECT_NEAR(same / 2000, 0.5, 0.06);
}

}  // namespace
}  // namespace overtake::reference
