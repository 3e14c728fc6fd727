// Ops on each element of one tensor.

#include <cmath>

#include "models/onnx/fold.h"

namespace overtake::onnx {
namespace {

using Kind = Constant::Kind;

std::vector<Constant> map_reals(const FoldCall& call, const Constant& input, double (*function)(double)) {
  Constant result = call.make(Kind::real, input.dims);
  for (std::size_t i = 0; i < result.reals.size(); ++i) result.reals[i] = to_single(function(input.reals[i]));
  return only(std::move(result));
}

// Of real numbers only.
template <double (*function)(double)>
std::vector<Constant> fold_real(const FoldCall& call) {
  const Constant& input = call.input(0);
  if (input.kind != Kind::real) call.fail("its input holds {} instead of real numbers", kind_name(input.kind));
  return map_reals(call, input, function);
}

// Of real or whole numbers.
template <double (*function)(double), std::int64_t (*whole_function)(std::int64_t)>
std::vector<Constant> fold_number(const FoldCall& call) {
  const Constant& input = call.input(0);
  if (input.kind == Kind::real) return map_reals(call, input, function);
  if (input.kind == Kind::boolean) call.fail("its input holds booleans instead of numbers");
  Constant result = call.make(Kind::integer, input.dims);
  for (std::size_t i = 0; i < result.integers.size(); ++i) result.integers[i] = whole_function(input.integers[i]);
  return only(std::move(result));
}

// From real numbers to booleans.
template <class Test>
std::vector<Constant> test_reals(const FoldCall& call, const Test& test) {
  const Constant& input = call.input(0);
  if (input.kind != Kind::real) call.fail("its input holds {} instead of real numbers", kind_name(input.kind));
  Constant result = call.make(Kind::boolean, input.dims);
  for (std::size_t i = 0; i < result.integers.size(); ++i) result.integers[i] = test(input.reals[i]) ? 1 : 0;
  return only(std::move(result));
}

double negate(double x) { return -x; }
double absolute(double x) { return std::abs(x); }
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }  // NaN stays
double floor_of(double x) { return std::floor(x); }
double ceil_of(double x) { return std::ceil(x); }
double round_half_even(double x) { return std::nearbyint(x); }
double square_root(double x) { return std::sqrt(x); }
double reciprocal(double x) { return 1 / x; }
double exponential(double x) { return std::exp(x); }
double logarithm(double x) { return std::log(x); }
double sine(double x) { return std::sin(x); }
double cosine(double x) { return std::cos(x); }
double hyperbolic_tangent(double x) { return std::tanh(x); }
double error_function(double x) { return std::erf(x); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The smallest number has no positive one; as in two's complement everywhere, it stays.
std::int64_t negate_whole(std::int64_t x) { return static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(x)); }
std::int64_t absolute_whole(std::int64_t x) { return x < 0 ? negate_whole(x) : x; }
std::int64_t sign_whole(std::int64_t x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

std::vector<Constant> fold_not(const FoldCall& call) {
  const Constant& input = call.input(0);
  if (input.kind != Kind::boolean) call.fail("its input holds {} instead of booleans", kind_name(input.kind));
  Constant result = call.make(Kind::boolean, input.dims);
  for (std::size_t i = 0; i < result.integers.size(); ++i) result.integers[i] = 1 - input.integers[i];
  return only(std::move(result));
}

std::vector<Constant> fold_is_nan(const FoldCall& call) {
  return test_reals(call, [](double x) { return std::isnan(x); });
}

std::vector<Constant> fold_is_inf(const FoldCall& call) {
  const bool positive = call.node.integer("detect_positive", 1) != 0;
  const bool negative = call.node.integer("detect_negative", 1) != 0;
  return test_reals(call, [&](double x) { return std::isinf(x) && (x > 0 ? positive : negative); });
}

// A bound of Clip, or null.
const Constant* clip_bound(const FoldCall& call, std::size_t i) {
  const Constant* bound = call.optional_input(i);
  if (bound != nullptr && (bound->kind != call.input(0).kind || bound->elements() != 1)) {
    call.fail("input {} is not a single number of the kind to clip", i);
  }
  return bound;
}

std::vector<Constant> fold_clip(const FoldCall& call) {
  const Constant& input = call.input(0);
  if (input.kind == Kind::boolean) call.fail("its input holds booleans instead of numbers");
  const Constant *low = clip_bound(call, 1), *high = clip_bound(call, 2);
  Constant result = call.make(input.kind, input.dims);
  const auto clip = [&](auto value, const auto* least, const auto* most) {
    if (least != nullptr && value < least->front()) value = least->front();
    if (most != nullptr && value > most->front()) value = most->front();
    return value;
  };
  for (std::size_t i = 0; i < result.reals.size(); ++i) {
    result.reals[i] =
        clip(input.reals[i], low == nullptr ? nullptr : &low->reals, high == nullptr ? nullptr : &high->reals);
  }
  for (std::size_t i = 0; i < result.integers.size(); ++i) {
    result.integers[i] =
        clip(input.integers[i], low == nullptr ? nullptr : &low->integers, high == nullptr ? nullptr : &high->integers);
  }
  return only(std::move(result));
}

constexpr FoldRow kUnaryFolds[] = {
    {"Neg", fold_number<negate, negate_whole>},
    {"Abs", fold_number<absolute, absolute_whole>},
    {"Sign", fold_number<sign, sign_whole>},
    {"Floor", fold_real<floor_of>},
    {"Ceil", fold_real<ceil_of>},
    {"Round", fold_real<round_half_even>},
    {"Sqrt", fold_real<square_root>},
    {"Reciprocal", fold_real<reciprocal>},
    {"Exp", fold_real<exponential>},
    {"Log", fold_real<logarithm>},
    {"Sin", fold_real<sine>},
    {"Cos", fold_real<cosine>},
    {"Tanh", fold_real<hyperbolic_tangent>},
    {"Erf", fold_real<error_function>},
    {"Sigmoid", fold_real<sigmoid>},
    {"Not", fold_not},
    {"IsNaN", fold_is_nan},
    {"IsInf", fold_is_inf},
    {"Clip", fold_clip},
};

}  // namespace

std::span<const FoldRow> unary_folds() { return kUnaryFolds; }

}  // namespace overtake::onnx
