// The activations that are functions of mathematics rather than a layer's own: with poles, bounds and parameters.

#include "op_case.h"
#include "ops/op.h"

namespace overtake::reference {
namespace {

struct Function {
  Attrs attrs;
  double (*value)(double);
  double low = -3, high = 3;  // where x is taken from
};

Attrs named(const std::string& function) { return {{"function", function}}; }
Attrs with_alpha(const std::string& function, double alpha) { return {{"function", function}, {"alpha", alpha}}; }

const std::vector<Function> kFunctions = {
    {named("exp"), [](double x) { return std::exp(x); }},
    {named("log"), [](double x) { return std::log(x); }, 0.2, 4},
    {named("sqrt"), [](double x) { return std::sqrt(x); }, 0.2, 4},
    {named("reciprocal"), [](double x) { return 1 / x; }, 0.4, 4},
    {named("erf"), [](double x) { return std::erf(x); }},
    {named("abs"), [](double x) { return std::fabs(x); }},
    {named("softplus"), [](double x) { return std::log1p(std::exp(x)); }, -5, 25},
    {named("mish"), [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, -8, 8},
    {with_alpha("leaky_relu", 0.3), [](double x) { return x > 0 ? x : 0.3 * x; }},
    {with_alpha("elu", 1.0), [](double x) { return x > 0 ? x : std::expm1(x); }},
    {with_alpha("elu", 0.4), [](double x) { return x > 0 ? x : 0.4 * std::expm1(x); }},
    {with_alpha("maximum", 0.25), [](double x) { return std::max(x, 0.25); }},
    {{{"function", std::string("clip")}, {"min", -0.7}, {"max", 1.3}},
     [](double x) { return std::min(std::max(x, -0.7), 1.3); }},
    {{{"function", std::string("clip")}, {"max", 1.3}}, [](double x) { return std::min(x, 1.3); }},
    {{{"function", std::string("clip")}, {"min", 0.2}}, [](double x) { return std::max(x, 0.2); }}};

Tensor applied(const Function& f, Tensor x) {
  for (double& value : x.v) value = f.value(value);
  return x;
}

// Spread over the range, never on a kink: those are at 0 and at multiples of 0.1.
double spread(const Function& f, std::size_t i) {
  const double unit = (static_cast<double>(i * 37 % 101) + 0.37) / 101.0;
  return static_cast<double>(static_cast<float>(f.low + (f.high - f.low) * unit));
}

OpCase function_case(const Function& f, const Dims& x) {
  return {.batch = x[0],
          .build = [=](OpBuilder& b) { return b.m.layer(Op::activation, {b.arg("x", x)}, f.attrs); },
          .predict = [=](const Values& v) { return applied(f, v.at("x")); },
          .fill = {{"x", [=](std::size_t i) { return spread(f, i); }}},
          .tolerance = 3e-5};  // x itself is rounded where a shift is taken off it
}

// y = w x stop(w): as a function of w, the second one is a constant, what w was at first.
TEST(OpStopGradient, NothingGoesBack) {
  const auto first = [](std::size_t i) { return 0.5 + 0.125 * static_cast<double>(i % 5); };
  for (const Dims& dims : {Dims{3, 41}, Dims{2, 3, 5, 7}}) {
    check_op({.batch = dims[0],
              .build =
                  [=](OpBuilder& b) {
                    const Value w = b.m.parameter(dims, {}, "w");
                    return b.m.mul(w, b.m.stop_gradient(b.m.activation(w, "tanh"), "stop"));
                  },
              .predict =
                  [=](const Values& v) {
                    Tensor y = v.at("w");
                    for (std::size_t i = 0; i < y.v.size(); ++i) y.v[i] *= std::tanh(first(i));
                    return y;
                  },
              .fill = {{"w", first}}});
  }
}

TEST(OpFunction, ValuesAndGradients) {
  for (const Function& f : kFunctions) {
    SCOPED_TRACE(f.attrs.text("function"));
    for (const Dims& x : {Dims{3, 41}, Dims{2, 3, 5, 7}, Dims{1, 1}, Dims{3, 5001}}) check_op(function_case(f, x));
  }
}

TEST(OpFunction, Bf16) {
  for (Function f : kFunctions) {
    SCOPED_TRACE(f.attrs.text("function"));
    f.high = std::min(f.high, 2.0);  // the rounding of a large result would drown the small ones
    OpCase c = function_case(f, {3, 41});
    c.fill = {{"x", [=](std::size_t i) {
                 const float x = to_float(from_float<bf16>(static_cast<float>(spread(f, i))));
                 return static_cast<double>(x);
               }}};
    check_op_bf16(c);
  }
}

// On the result of a layer that it must not be joined with, in a channels-last image, computed in place.
TEST(OpFunction, BehindOtherLayers) {
  const Conv2d o{.out = 5, .kernel = 1};
  for (const Function& f : kFunctions) {
    SCOPED_TRACE(f.attrs.text("function"));
    if (f.low > 0) continue;  // a layer's results may be negative
    check_op(
        {.batch = 3,
         .build =
             [=](OpBuilder& b) {
               const Value y = b.m.conv2d(b.arg("x", {3, 2, 4, 5}), o, "conv");
               return b.m.layer(Op::activation, {y}, f.attrs);
             },
         .predict =
             [=](const Values& v) { return applied(f, conv2d(v.at("x"), v.at("conv.weight"), &v.at("conv.bias"), o)); },
         .tolerance = 3e-5});
    check_op(
        {.batch = 3,
         .build =
             [=](OpBuilder& b) {
               const Value y = b.m.linear(b.arg("x", {3, 7}), {.out = 5}, "fc");
               return b.m.layer(Op::activation, {y}, f.attrs);
             },
         .predict = [=](const Values& v) { return applied(f, linear(v.at("x"), v.at("fc.weight"), &v.at("fc.bias"))); },
         .tolerance = 3e-5});
  }
}

// x^(1/2) of a sum of squares: functions in a row whose derivatives read their results.
TEST(OpFunction, Chain) {
  check_op({.batch = 3,
            .build =
                [](OpBuilder& b) {
                  const Value e = b.m.activation(b.arg("x", {3, 7}), "exp");
                  return b.m.activation(b.m.activation(b.m.add(e, b.m.mul(e, e)), "sqrt"), "reciprocal");
                },
            .predict =
                [](const Values& v) {
                  Tensor y = v.at("x");
                  for (double& x : y.v) x = 1 / std::sqrt(std::exp(x) + std::exp(2 * x));
                  return y;
                },
            .tolerance = 3e-5});
}

TEST(OpFunction, ClipOfAModel) {
  check_op({.batch = 3,
            .build =
                [](OpBuilder& b) {
                  return b.m.clip(b.arg("x", {3, 17}), -0.3, 0.4);
                },
            .predict =
                [](const Values& v) {
                  Tensor y = v.at("x");
                  for (double& x : y.v) x = std::min(std::max(x, -0.3), 0.4);
                  return y;
                }});
}

void expect_refused(const Attrs& attrs, const std::vector<std::string>& words) {
  Model m("op", 2);
  try {
    m.layer(Op::activation, {m.input({3}, "x")}, attrs, "act");
    FAIL() << "not refused";
  } catch (const UserError& e) {
    for (const std::string& word : words)
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << "no '" << word << "' in: " << e.what();
  }
}

TEST(OpFunction, Errors) {
  expect_refused(named("relu7"), {"act", "relu7", "hard_sigmoid", "leaky_relu", "clip"});
  expect_refused(named("leaky_relu"), {"act", "leaky_relu", "alpha"});
  expect_refused(named("elu"), {"elu", "alpha"});
  expect_refused(with_alpha("elu", std::numeric_limits<double>::infinity()), {"elu", "alpha", "inf"});
  expect_refused({{"function", std::string("clip")}, {"min", 2.0}, {"max", 1.0}}, {"clip", "2", "1"});
  Model m("op", 2);
  EXPECT_THROW(m.linear(m.input({3}, "x"), {.out = 2, .function = "clip"}, "fc"), UserError);
  EXPECT_THROW(m.linear(m.input({3}, "z"), {.out = 2, .function = "exp"}, "fc2"), UserError);
}

TEST(OpFunction, LinearTakesOnlyTheFunctionsOfLayers) {
  for (const char* function : {"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "hard_swish", "hard_sigmoid"})
    EXPECT_TRUE(linear_takes(function)) << function;
  for (const Function& f : kFunctions) EXPECT_FALSE(linear_takes(f.attrs.text("function")));
}

}  // namespace
}  // namespace overtake::reference
