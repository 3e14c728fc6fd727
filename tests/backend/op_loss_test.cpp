// Cross entropy and mean squared error.

#include "op_case.h"

namespace overtake::reference {
namespace {

struct EntropyCase {
  Dims logits;
  CrossEntropy options;
  std::int64_t ignored_every = 0;  // every so many labels is the ignored one; 0: none
};

OpCase entropy_case(const EntropyCase& c) {
  const std::int64_t classes = c.logits.back();
  OpCase op{.batch = c.logits[0],
            .build =
                [=](OpBuilder& b) {
                  const Value x = b.arg("x", c.logits);
                  b.m.cross_entropy(x, c.options);
                  return x;
                },
            .predict = [](const Values& v) { return v.at("x"); },
            .loss = [=](const Values& v) { return cross_entropy(v.at("x"), v.at("labels"), c.options)[0]; }};
  op.fill["labels"] = [=](std::size_t i) {
    const auto k = static_cast<std::int64_t>(i);
    if (c.ignored_every > 0 && k % c.ignored_every == 1) return static_cast<double>(c.options.ignore_index);
    return static_cast<double>((k * 7 + 3) % classes);
  };
  return op;
}

const std::vector<EntropyCase> kEntropies = {{{5, 7}, {}, 0},
                                             {{1, 2}, {}, 0},
                                             {{9, 33}, {.smoothing = 0.1}, 0},
                                             {{7, 10}, {}, 3},
                                             {{3, 4, 11}, {.smoothing = 0.3, .ignore_index = 2}, 4},
                                             {{2, 3, 2, 5}, {}, 2},
                                             {{130, 3}, {.smoothing = 0.05}, 5}};

// The logits are trained themselves, so there is no prediction to keep but them.
void check_entropy(const OpCase& c, double tolerance, bool bf16) {
  const Values values = random_values(c, bf16 ? kBf16Grid : kFloatGrid);
  check_runs(c, values,
             {{.parts = 1, .keep = false, .bf16 = bf16},
              {.parts = 2, .through_sum = !bf16, .keep = false, .bf16 = bf16},
              {.parts = 3, .keep = false, .bf16 = bf16}},
             tolerance);
}

TEST(OpCrossEntropy, SmoothingAndIgnoredLabels) {
  for (const EntropyCase& c : kEntropies) check_entropy(entropy_case(c), 1e-5, false);
}

TEST(OpCrossEntropy, Bf16) {
  OVERTAKE_NEEDS_BF16();
  check_entropy(entropy_case({{9, 33}, {.smoothing = 0.1}, 4}), 3e-2, true);
}

TEST(OpCrossEntropy, CountsRowsAndRightOnes) {
  for (const EntropyCase& c : kEntropies) {
    const OpCase op = entropy_case(c);
    const Values values = random_values(op, kFloatGrid);
    TrainingRun training = run_of(build_case(op, false).graph, setup_of({.parts = 2}, ""));
    write_values(training, values);
    const StepResult got = training.step(0.0f);
    const auto want = cross_entropy(values.at("x"), values.at("labels"), c.options);
    EXPECT_NEAR(static_cast<double>(got.loss), want[0], 1e-5 * want[0]);
    EXPECT_EQ(static_cast<double>(got.counted), want[1]);
    EXPECT_EQ(static_cast<double>(got.correct), want[2]);
  }
}

// Logits far from zero must not overflow.
TEST(OpCrossEntropy, LargeLogits) {
  OpCase c = entropy_case({{4, 6}, {.smoothing = 0.1}, 0});
  c.fill["x"] = [](std::size_t i) { return static_cast<double>(i % 6) * 20 - 60; };
  check_entropy(c, 1e-5, false);
}

TEST(OpMeanSquaredError, Shapes) {
  for (const Dims& x : {Dims{5, 7}, Dims{1, 1}, Dims{3, 2, 4, 5}, Dims{7, 3001}}) {
    OpCase c{.batch = x[0],
             .build =
                 [=](OpBuilder& b) {
                   const Value y = b.arg("x", x);
                   b.m.mean_squared_error(y);
                   return y;
                 },
             .predict = [](const Values& v) { return v.at("x"); },
             .loss = [](const Values& v) { return mean_squared_error(v.at("x"), v.at("targets")); }};
    check_entropy(c, 1e-5, false);
    if (test_device_has_bf16()) check_entropy(c, 3e-2, true);
  }
}

// Two losses of one value add up.
TEST(OpLosses, TwoLosses) {
  const OpCase c{.batch = 4,
                 .build =
                     [](OpBuilder& b) {
                       const Value y = b.m.linear(b.arg("x", {4, 5}), {.out = 3}, "fc");
                       b.m.cross_entropy(y, {}, "classes");
                       b.m.mean_squared_error(y, "values");
                       return y;
                     },
                 .predict = [](const Values& v) { return linear(v.at("x"), v.at("fc.weight"), &v.at("fc.bias")); },
                 .loss =
                     [](const Values& v) {
                       const Tensor y = linear(v.at("x"), v.at("fc.weight"), &v.at("fc.bias"));
                       return cross_entropy(y, v.at("labels"), {})[0] + mean_squared_error(y, v.at("targets"));
                     },
                 .ids = 3};
  check_op(c);
}

}  // namespace
}  // namespace overtake::reference
