// Convolution, pooling, batch and group norm.

#include "op_case.h"

namespace overtake::reference {
namespace {

OpCase conv_case(const Dims& x, const Conv2d& o) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return b.m.conv2d(b.arg("x", x), o, "conv"); },
          .predict =
              [=](const Values& v) {
                return conv2d(v.at("x"), v.at("conv.weight"), o.bias ? &v.at("conv.bias") : nullptr, o);
              },
          .tolerance = 2e-5};
}

TEST(OpConv2d, Plain) {
  check_op(conv_case({2, 3, 5, 6}, {.out = 4, .kernel = 3, .padding = 1}));
  check_op(conv_case({3, 1, 7, 7}, {.out = 5, .kernel = 5}));
  check_op(conv_case({1, 1, 1, 1}, {.out = 1}));
}

TEST(OpConv2d, NoBias) { check_op(conv_case({2, 5, 4, 4}, {.out = 3, .kernel = 3, .padding = 1, .bias = false})); }

TEST(OpConv2d, OneByOne) { check_op(conv_case({3, 17, 3, 2}, {.out = 19})); }

TEST(OpConv2d, BlockedChannels) { check_op(conv_case({2, 16, 5, 5}, {.out = 32, .kernel = 3, .padding = 1})); }

TEST(OpConv2d, Stride) {
  check_op(conv_case({3, 3, 9, 8}, {.out = 4, .kernel = 3, .stride = 2, .padding = 1}));
  check_op(conv_case({2, 4, 7, 7}, {.out = 6, .kernel = 1, .stride = 2, .bias = false}));
  check_op(conv_case({2, 3, 11, 11}, {.out = 8, .kernel = 7, .stride = 2, .padding = 3}));
  check_op(conv_case({2, 3, 8, 8}, {.out = 4, .kernel = 2, .stride = 3}));  // columns that no window sees
}

TEST(OpConv2d, UnevenPaddingAndKernel) {
  check_op(conv_case({2, 3, 5, 6}, {.out = 4, .kernel_hw = {2, 4}, .padding_tlbr = {0, 1, 1, 2}}));
  check_op(conv_case({2, 2, 6, 5}, {.out = 3, .stride = 2, .kernel_hw = {3, 1}, .padding_tlbr = {2, 0, 0, 0}}));
}

TEST(OpConv2d, Dilation) {
  check_op(conv_case({2, 3, 9, 9}, {.out = 4, .kernel = 3, .padding = 2, .dilation = 2}));
  check_op(conv_case({2, 2, 9, 10}, {.out = 3, .kernel = 3, .stride = 2, .padding = 1, .dilation = 3}));
}

TEST(OpConv2d, Groups) {
  check_op(conv_case({2, 6, 5, 5}, {.out = 4, .kernel = 3, .padding = 1, .groups = 2}));
  check_op(conv_case({3, 6, 4, 4}, {.out = 9, .kernel = 3, .padding = 1, .groups = 3, .bias = false}));
  check_op(conv_case({2, 32, 4, 4}, {.out = 32, .kernel = 3, .padding = 1, .groups = 2}));
}

TEST(OpConv2d, Depthwise) {
  check_op(conv_case({2, 5, 6, 6}, {.out = 5, .kernel = 3, .padding = 1, .groups = 5}));
  check_op(conv_case({3, 20, 7, 5}, {.out = 20, .kernel = 5, .stride = 2, .padding = 2, .groups = 20, .bias = false}));
  check_op(conv_case({2, 4, 6, 6}, {.out = 8, .kernel = 3, .padding = 1, .groups = 4}));  // two per channel
  check_op(conv_case({2, 16, 9, 9}, {.out = 16, .kernel = 3, .padding = 2, .dilation = 2, .groups = 16}));
}

TEST(OpConv2d, Bf16) {
  check_op_bf16(conv_case({2, 3, 9, 8}, {.out = 8, .kernel = 3, .stride = 2, .padding = 1}));
  check_op_bf16(conv_case({2, 16, 5, 5}, {.out = 32, .kernel = 3, .padding = 1, .bias = false}));
  check_op_bf16(conv_case({2, 16, 6, 6}, {.out = 16, .kernel = 3, .padding = 1, .groups = 16}));
}

// Two convolutions in a row: no reorder between them.
TEST(OpConv2d, Chain) {
  const Conv2d first{.out = 6, .kernel = 3, .padding = 1}, second{.out = 4, .kernel = 3, .stride = 2};
  check_op({.batch = 3,
            .build =
                [=](OpBuilder& b) {
                  return b.m.conv2d(b.m.conv2d(b.arg("x", {3, 2, 7, 7}), first, "a"), second, "b");
                },
            .predict =
                [=](const Values& v) {
                  const Tensor y = conv2d(v.at("x"), v.at("a.weight"), &v.at("a.bias"), first);
                  return conv2d(y, v.at("b.weight"), &v.at("b.bias"), second);
                },
            .tolerance = 2e-5});
}

// Values that differ within every window and are exact in bfloat16.
double distinct(std::size_t i) { return static_cast<double>(static_cast<std::int64_t>(i * 37 % 251) - 125) * 0x1p-6; }

OpCase pool_case(const Dims& x, const Pool2d& o, PoolKind kind) {
  return {.batch = x[0],
          .build =
              [=](OpBuilder& b) {
                const Value v = b.arg("x", x);
                return kind == PoolKind::max ? b.m.max_pool(v, o) : b.m.avg_pool(v, o);
              },
          .predict = [=](const Values& v) { return pool(v.at("x"), o, kind); },
          .fill = {{"x", distinct}}};
}

const std::vector<std::pair<Dims, Pool2d>> kPools = {
    {{2, 3, 6, 8}, {}},
    {{3, 5, 7, 5}, {}},
    {{2, 3, 7, 7}, {.kernel = 3, .stride = 2, .padding = 1}},
    {{1, 17, 5, 6}, {.kernel = 3, .stride = 1, .padding = 1}},
    {{3, 2, 8, 9}, {.kernel = 2, .stride = 3}},
    {{2, 4, 7, 6}, {.kernel = 2, .stride = 2, .ceil = true}},
    {{2, 4, 8, 8}, {.kernel = 3, .stride = 2, .padding = 1, .ceil = true}},
    {{2, 2, 5, 5}, {.kernel = 2, .stride = 2, .padding = 1, .ceil = true}},
    {{2, 1, 4, 4}, {.kernel = 4, .stride = 4}}};

// One filter, used twice.
OpCase filter_used_twice() {
  const Conv2d o{.out = 8, .kernel = 3, .padding = 1, .bias = false};
  return {.batch = 3,
          .build =
              [=](OpBuilder& b) {
                const Value x = b.m.conv2d(b.arg("x", {3, 8, 5, 6}), o, "a");
                const std::vector<std::int64_t> kernel = {3, 3}, ones = {1, 1}, padding = {1, 1, 1, 1};
                return b.m.layer(Op::conv2d, {b.m.activation(x, "tanh")},
                                 {{"out", std::int64_t{8}},
                                  {"kernel", kernel},
                                  {"stride", ones},
                                  {"padding", padding},
                                  {"dilation", ones},
                                  {"groups", std::int64_t{1}},
                                  {"bias", std::int64_t{0}}},
                                 "b", {{.shared = b.m.parameter("a.weight")}, {}});
              },
          .predict =
              [=](const Values& v) {
                const Tensor& w = v.at("a.weight");
                return conv2d(activation("tanh", conv2d(v.at("x"), w, nullptr, o)), w, nullptr, o);
              }};
}

TEST(OpConv2d, OneFilterUsedTwice) { check_op(filter_used_twice()); }
TEST(OpConv2d, OneFilterUsedTwiceInBf16) { check_op_bf16(filter_used_twice()); }

TEST(OpMaxPool, WindowsPaddingCeil) {
  for (const auto& [x, options] : kPools) check_op(pool_case(x, options, PoolKind::max));
}

TEST(OpAvgPool, WindowsPaddingCeil) {
  for (const auto& [x, options] : kPools)
    for (const bool count_include_pad : {true, false}) {
      SCOPED_TRACE(::testing::Message() << "kernel " << options.kernel << " stride " << options.stride << " padding "
                                        << options.padding << " counting padding " << count_include_pad);
      Pool2d o = options;
      o.count_include_pad = count_include_pad;
      check_op(pool_case(x, o, PoolKind::average));
    }
}

TEST(OpPool, Bf16) {
  check_op_bf16(pool_case({2, 5, 7, 7}, {.kernel = 3, .stride = 2, .padding = 1}, PoolKind::max));
  check_op_bf16(pool_case({2, 5, 7, 7}, {.kernel = 3, .stride = 2, .padding = 1}, PoolKind::average));
}

OpCase global_pool_case(const Dims& x) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return b.m.global_pool(b.arg("x", x)); },
          .predict = [](const Values& v) { return global_pool(v.at("x")); }};
}

TEST(OpGlobalPool, Shapes) {
  for (const Dims& x : {Dims{2, 3, 4, 5}, Dims{5, 17, 1, 1}, Dims{1, 33, 7, 7}}) check_op(global_pool_case(x));
}
TEST(OpGlobalPool, Bf16) { check_op_bf16(global_pool_case({3, 20, 4, 4})); }

Tensor adaptive_pool(const Tensor& x, std::int64_t out_h, std::int64_t out_w) {
  const std::int64_t height = x.dims[2], width = x.dims[3];
  Tensor y({x.dims[0], x.dims[1], out_h, out_w});
  for_each_index(y.dims, [&](const Dims& i) {
    const std::int64_t top = i[2] * height / out_h, bottom = ((i[2] + 1) * height + out_h - 1) / out_h;
    const std::int64_t left = i[3] * width / out_w, right = ((i[3] + 1) * width + out_w - 1) / out_w;
    double sum = 0;
    for (std::int64_t r = top; r < bottom; ++r)
      for (std::int64_t c = left; c < right; ++c) sum += x(i[0], i[1], r, c);
    y.v[y.offset(i)] = sum / static_cast<double>((bottom - top) * (right - left));
  });
  return y;
}

OpCase adaptive_pool_case(const Dims& x, std::int64_t out_h, std::int64_t out_w) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return b.m.adaptive_pool(b.arg("x", x), out_h, out_w); },
          .predict = [=](const Values& v) { return adaptive_pool(v.at("x"), out_h, out_w); }};
}

TEST(OpAdaptivePool, Shapes) {
  check_op(adaptive_pool_case({2, 3, 8, 6}, 4, 3));
  check_op(adaptive_pool_case({3, 17, 7, 5}, 3, 2));  // overlapping windows
  check_op(adaptive_pool_case({2, 5, 4, 4}, 7, 5));   // more outputs than inputs
  check_op(adaptive_pool_case({2, 4, 1, 1}, 7, 7));
  check_op(adaptive_pool_case({1, 33, 7, 7}, 7, 7));
  check_op(adaptive_pool_case({5, 2, 3, 9}, 1, 1));
}
TEST(OpAdaptivePool, Bf16) { check_op_bf16(adaptive_pool_case({2, 5, 7, 6}, 3, 4)); }

TEST(OpAdaptivePool, Errors) {
  Model m("op", 2);
  const Value image = m.input({3, 8, 8}, "x");
  EXPECT_THROW(m.adaptive_pool(image, 0, 7), UserError);
  EXPECT_THROW(m.adaptive_pool(image, 7, -1), UserError);
  EXPECT_THROW(m.layer(Op::adaptive_pool, {image}, {{"size", Dims{7}}}), UserError);
  EXPECT_THROW(m.adaptive_pool(m.input({3, 8}, "rows"), 7, 7), UserError);
}

enum class Behind { nothing, relu, add, add_relu, add_in_front_relu };

// Batch norm and what is fused to it; the residual is another input.
OpCase batch_norm_case(const Dims& x, Behind behind, double eps = 1e-5) {
  const bool has_residual = behind != Behind::nothing && behind != Behind::relu;
  const bool has_relu = behind != Behind::nothing && behind != Behind::add;
  return {.batch = x[0],
          .build =
              [=](OpBuilder& b) {
                Value y = b.m.batch_norm(b.arg("x", x), {.eps = eps}, "bn");
                if (behind == Behind::add_in_front_relu) y = b.m.add(b.arg("residual", x), y, "join");
                if (behind == Behind::add || behind == Behind::add_relu) y = b.m.add(y, b.arg("residual", x), "join");
                return has_relu ? b.m.relu(y, "relu") : y;
              },
          .predict =
              [=](const Values& v) {
                Tensor y = batch_norm(v.at("x"), v.at("bn.weight"), v.at("bn.bias"), eps);
                if (has_residual) y = add(y, v.at("residual"));
                return has_relu ? activation("relu", y) : y;
              },
          .tolerance = 2e-5};
}

const std::vector<Dims> kNormShapes = {{4, 3, 5, 5}, {2, 17, 3, 4}, {3, 1, 9, 2}, {5, 33, 7, 9}};

TEST(OpBatchNorm, Plain) {
  for (const Dims& x : kNormShapes) check_op(batch_norm_case(x, Behind::nothing));
  check_op(batch_norm_case({4, 3, 5, 5}, Behind::nothing, 0.1));
}
TEST(OpBatchNorm, Relu) {
  for (const Dims& x : kNormShapes) check_op(batch_norm_case(x, Behind::relu));
}
TEST(OpBatchNorm, Add) {
  for (const Dims& x : kNormShapes) check_op(batch_norm_case(x, Behind::add));
}
TEST(OpBatchNorm, AddRelu) {
  for (const Dims& x : kNormShapes) {
    check_op(batch_norm_case(x, Behind::add_relu));
    check_op(batch_norm_case(x, Behind::add_in_front_relu));
  }
}
TEST(OpBatchNorm, Bf16) {
  for (const Behind behind : {Behind::nothing, Behind::relu, Behind::add, Behind::add_relu})
    check_op_bf16(batch_norm_case({4, 16, 5, 6}, behind));
}

// A residual block: the same tensor goes into the norm and around it.
TEST(OpBatchNorm, ResidualIsTheInput) {
  check_op({.batch = 3,
            .build =
                [](OpBuilder& b) {
                  const Value x = b.arg("x", {3, 4, 5, 3});
                  return b.m.relu(b.m.add(b.m.batch_norm(x, {}, "bn"), x));
                },
            .predict =
                [](const Values& v) {
                  return activation("relu", add(batch_norm(v.at("x"), v.at("bn.weight"), v.at("bn.bias")), v.at("x")));
                },
            .tolerance = 2e-5});
}

// Two norms join, as in a residual block with a projection: one of them takes the sum.
TEST(OpBatchNorm, SumOfTwoNorms) {
  check_op({.batch = 3,
            .build =
                [](OpBuilder& b) {
                  const Value a = b.m.batch_norm(b.arg("a", {3, 4, 5, 3}), {}, "bn1");
                  return b.m.relu(b.m.add(a, b.m.batch_norm(b.arg("b", {3, 4, 5, 3}), {}, "bn2")));
                },
            .predict =
                [](const Values& v) {
                  return activation("relu", add(batch_norm(v.at("a"), v.at("bn1.weight"), v.at("bn1.bias")),
                                                batch_norm(v.at("b"), v.at("bn2.weight"), v.at("bn2.bias"))));
                },
            .tolerance = 2e-5});
}

// Running statistics move towards mean and unbiased variance, and evaluation uses them.
TEST(OpBatchNorm, RunningStatistics) {
  const Dims dims = {3, 5, 4, 2};
  const double momentum = 0.3;
  OpCase c = batch_norm_case(dims, Behind::relu);
  c.build = [=](OpBuilder& b) { return b.m.relu(b.m.batch_norm(b.arg("x", dims), {.momentum = momentum}, "bn")); };
  const Values values = random_values(c, kFloatGrid);
  BuiltCase built = build_case(c, false);
  TrainingRun training = run_of(std::move(built.graph), setup_of({.parts = 2}, ""));
  write_values(training, values);
  const Moments m = channel_moments(values.at("x"));
  Moments running{std::vector<double>(5, 0.0), std::vector<double>(5, 1.0), {}};
  for (int step = 0; step < 3; ++step) {
    training.step(0.0f);
    for (std::size_t i = 0; i < 5; ++i) {
      const auto n = static_cast<double>(m.count[i]);
      running.mean[i] = (1 - momentum) * running.mean[i] + momentum * m.mean[i];
      running.variance[i] = (1 - momentum) * running.variance[i] + momentum * m.variance[i] * n / (n - 1);
    }
  }
  const Graph& g = training.graph();
  const Tensor mean = read_tensor(training.executor(), find_buffer(g, "bn.running_mean"));
  const Tensor variance = read_tensor(training.executor(), find_buffer(g, "bn.running_var"));
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(mean.v[i], running.mean[i], 1e-6);
    EXPECT_NEAR(variance.v[i], running.variance[i], 1e-6);
  }
  const Tensor y = activation("relu", normalized(values.at("x"), running, values.at("bn.weight"), values.at("bn.bias"),
                                                 1, 1e-5, [](const Dims& i) { return i[1]; }));
  EXPECT_NEAR(static_cast<double>(training.evaluate().loss), mean_squared_error(y, values.at("targets")), 1e-5);
  EXPECT_EQ(mean.v, read_tensor(training.executor(), find_buffer(g, "bn.running_mean")).v) << "evaluation changed it";
}

OpCase group_norm_case(const Dims& x, std::int64_t groups) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return b.m.group_norm(b.arg("x", x), {.groups = groups}, "gn"); },
          .predict = [=](const Values& v) { return group_norm(v.at("x"), v.at("gn.weight"), v.at("gn.bias"), groups); },
          .tolerance = 2e-5};
}

TEST(OpGroupNorm, Groups) {
  check_op(group_norm_case({2, 6, 4, 3}, 1));
  check_op(group_norm_case({3, 6, 4, 3}, 3));
  check_op(group_norm_case({2, 6, 4, 3}, 6));
  check_op(group_norm_case({5, 34, 3, 3}, 2));
}
TEST(OpGroupNorm, Bf16) { check_op_bf16(group_norm_case({3, 16, 4, 3}, 4)); }

}  // namespace
}  // namespace overtake::reference
