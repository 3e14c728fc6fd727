// Ops on the elements of several tensors, broadcast to one shape.

#include <cmath>

#include "models/onnx/fold.h"

namespace overtake::onnx {
namespace {

using Kind = Constant::Kind;

std::uint64_t bits(std::int64_t x) { return static_cast<std::uint64_t>(x); }
std::int64_t number(std::uint64_t x) { return static_cast<std::int64_t>(x); }

Dims common_dims(const FoldCall& call, const Constant& a, const Constant& b) {
  std::optional<Dims> dims = broadcast(a.dims, b.dims);
  if (!dims) call.fail("shapes {} and {} do not fit", shape_text(a.dims), shape_text(b.dims));
  return *std::move(dims);
}

void check_same_kind(const FoldCall& call, const Constant& a, const Constant& b) {
  if (a.kind != b.kind) call.fail("{} and {} do not fit", kind_name(a.kind), kind_name(b.kind));
}

// results[i] = function(a's element, b's element), which are of one type.
template <class Results, class Values, class Function>
void map_pairs(Results& results, const Dims& dims, const Constant& a, const Values& a_values, const Constant& b,
               const Values& b_values, const Function& function) {
  Walk at_a = broadcast_walk(a.dims, dims), at_b = broadcast_walk(b.dims, dims);
  for (auto& result : results) {
    result = function(a_values[at_a.at()], b_values[at_b.at()]);
    at_a.next();
    at_b.next();
  }
}

// ---- arithmetic. Whole numbers wrap around, as in ONNX's runtimes.

struct Add {
  static double of(double a, double b, const FoldCall&) { return a + b; }
  static std::int64_t of(std::int64_t a, std::int64_t b, const FoldCall&) { return number(bits(a) + bits(b)); }
};

struct Sub {
  static double of(double a, double b, const FoldCall&) { return a - b; }
  static std::int64_t of(std::int64_t a, std::int64_t b, const FoldCall&) { return number(bits(a) - bits(b)); }
};

struct Mul {
  static double of(double a, double b, const FoldCall&) { return a * b; }
  static std::int64_t of(std::int64_t a, std::int64_t b, const FoldCall&) { return number(bits(a) * bits(b)); }
};

// Whole numbers: towards zero.
struct Div {
  static double of(double a, double b, const FoldCall&) { return a / b; }
  static std::int64_t of(std::int64_t a, std::int64_t b, const FoldCall& call) {
    if (b == 0) call.fail("{} is divided by 0", a);
    return b == -1 ? number(0 - bits(a)) : a / b;
  }
};

// fmod = 0, whole numbers only: the sign is the divisor's; fmod = 1: the dividend's.
struct Mod {
  static double of(double a, double b, const FoldCall& call) {
    if (call.node.integer("fmod", 0) == 0) call.fail("real numbers need fmod = 1");
    return std::fmod(a, b);
  }
  static std::int64_t of(std::int64_t a, std::int64_t b, const FoldCall& call) {
    if (b == 0) call.fail("{} is divided by 0", a);
    const std::int64_t rest = b == -1 ? 0 : a % b;
    const bool keeps_sign = rest == 0 || call.node.integer("fmod", 0) != 0;
    return keeps_sign || (rest < 0) == (b < 0) ? rest : rest + b;
  }
};

// NaN wins.
struct Min {
  static double of(double a, double b, const FoldCall&) { return a < b || std::isnan(a) ? a : b; }
  static std::int64_t of(std::int64_t a, std::int64_t b, const FoldCall&) { return a < b ? a : b; }
};

struct Max {
  static double of(double a, double b, const FoldCall&) { return a > b || std::isnan(a) ? a : b; }
  static std::int64_t of(std::int64_t a, std::int64_t b, const FoldCall&) { return a > b ? a : b; }
};

template <class Op>
Constant combine(const FoldCall& call, const Constant& a, const Constant& b) {
  check_same_kind(call, a, b);
  if (a.kind == Kind::boolean) call.fail("its inputs hold booleans instead of numbers");
  const Dims dims = common_dims(call, a, b);
  Constant result = call.make(a.kind, dims);
  map_pairs(result.reals, dims, a, a.reals, b, b.reals,
            [&](double x, double y) { return to_single(Op::of(x, y, call)); });
  map_pairs(result.integers, dims, a, a.integers, b, b.integers,
            [&](std::int64_t x, std::int64_t y) { return Op::of(x, y, call); });
  return result;
}

template <class Op>
std::vector<Constant> fold_arithmetic(const FoldCall& call) {
  return only(combine<Op>(call, call.input(0), call.input(1)));
}

// Of one tensor or more.
template <class Op>
std::vector<Constant> fold_each(const FoldCall& call) {
  Constant result = call.with_dims(call.input(0), call.input(0).dims);
  for (std::size_t i = 1; i < call.node.inputs.size(); ++i) result = combine<Op>(call, result, call.input(i));
  return only(std::move(result));
}

std::int64_t whole_power(std::int64_t base, std::int64_t exponent, const FoldCall& call) {
  if (exponent < 0) {
    if (base == 0) call.fail("0 to the power of {}", exponent);
    if (base != 1 && base != -1) return 0;
    exponent &= 1;  // 1 / base is base
  }
  std::uint64_t power = 1, square = bits(base);
  for (std::uint64_t rest = bits(exponent); rest != 0; rest >>= 1, square *= square) {
    if ((rest & 1) != 0) power *= square;
  }
  return number(power);
}

// The result is of the base's kind, whatever the exponent's.
std::vector<Constant> fold_pow(const FoldCall& call) {
  const Constant &base = call.input(0), &exponent = call.input(1);
  if (base.kind == Kind::boolean || exponent.kind == Kind::boolean) call.fail("its inputs hold booleans");
  const Dims dims = common_dims(call, base, exponent);
  Constant result = call.make(base.kind, dims);
  Walk at_base = broadcast_walk(base.dims, dims), at_exponent = broadcast_walk(exponent.dims, dims);
  for (std::size_t i = 0; i < static_cast<std::size_t>(result.elements()); ++i) {
    const double power = std::pow(base.real_at(at_base.at()), exponent.real_at(at_exponent.at()));
    if (base.kind == Kind::real) {
      result.reals[i] = to_single(power);
    } else if (exponent.kind == Kind::real) {
      result.integers[i] = to_integer(power);
    } else {
      result.integers[i] = whole_power(base.integers[at_base.at()], exponent.integers[at_exponent.at()], call);
    }
    at_base.next();
    at_exponent.next();
  }
  return only(std::move(result));
}

// ---- to booleans

template <class Test>
std::vector<Constant> compare(const FoldCall& call, const Test& test) {
  const Constant &a = call.input(0), &b = call.input(1);
  check_same_kind(call, a, b);
  const Dims dims = common_dims(call, a, b);
  Constant result = call.make(Kind::boolean, dims);
  const auto fill = [&](const auto& a_values, const auto& b_values) {
    map_pairs(result.integers, dims, a, a_values, b, b_values,
              [&](auto x, auto y) { return std::int64_t{test(x, y) ? 1 : 0}; });
  };
  if (a.kind == Kind::real) {
    fill(a.reals, b.reals);
  } else {
    fill(a.integers, b.integers);
  }
  return only(std::move(result));
}

std::vector<Constant> fold_equal(const FoldCall& call) {
  return compare(call, [](auto x, auto y) { return x == y; });
}

template <class Test>
std::vector<Constant> compare_numbers(const FoldCall& call, const Test& test) {
  if (call.input(0).kind == Kind::boolean) call.fail("its inputs hold booleans instead of numbers");
  return compare(call, test);
}

std::vector<Constant> fold_less(const FoldCall& call) {
  return compare_numbers(call, [](auto x, auto y) { return x < y; });
}
std::vector<Constant> fold_less_or_equal(const FoldCall& call) {
  return compare_numbers(call, [](auto x, auto y) { return x <= y; });
}
std::vector<Constant> fold_greater(const FoldCall& call) {
  return compare_numbers(call, [](auto x, auto y) { return x > y; });
}
std::vector<Constant> fold_greater_or_equal(const FoldCall& call) {
  return compare_numbers(call, [](auto x, auto y) { return x >= y; });
}

template <class Test>
std::vector<Constant> combine_booleans(const FoldCall& call, const Test& test) {
  if (call.input(0).kind != Kind::boolean) call.fail("its inputs hold {}", kind_name(call.input(0).kind));
  return compare(call, test);
}

std::vector<Constant> fold_and(const FoldCall& call) {
  return combine_booleans(call, [](auto x, auto y) { return x != 0 && y != 0; });
}
std::vector<Constant> fold_or(const FoldCall& call) {
  return combine_booleans(call, [](auto x, auto y) { return x != 0 || y != 0; });
}
std::vector<Constant> fold_xor(const FoldCall& call) {
  return combine_booleans(call, [](auto x, auto y) { return x != y; });
}

std::vector<Constant> fold_where(const FoldCall& call) {
  const Constant &condition = call.input(0), &yes = call.input(1), &no = call.input(2);
  if (condition.kind != Kind::boolean) call.fail("its condition holds {}", kind_name(condition.kind));
  check_same_kind(call, yes, no);
  const Dims branches = common_dims(call, yes, no);
  std::optional<Dims> dims = broadcast(condition.dims, branches);
  if (!dims) call.fail("shapes {} and {} do not fit", shape_text(condition.dims), shape_text(branches));
  Constant result = call.make(yes.kind, *dims);
  Walk at_condition = broadcast_walk(condition.dims, *dims);
  Walk at_yes = broadcast_walk(yes.dims, *dims), at_no = broadcast_walk(no.dims, *dims);
  for (std::size_t i = 0; i < static_cast<std::size_t>(result.elements()); ++i) {
    const bool is_yes = condition.integers[at_condition.at()] != 0;
    const Constant& source = is_yes ? yes : no;
    const std::size_t at = is_yes ? at_yes.at() : at_no.at();
    if (result.kind == Kind::real) {
      result.reals[i] = source.reals[at];
    } else {
      result.integers[i] = source.integers[at];
    }
    at_condition.next();
    at_yes.next();
    at_no.next();
  }
  return only(std::move(result));
}

constexpr FoldRow kBinaryFolds[] = {
    {"Add", fold_arithmetic<Add>},
    {"Sub", fold_arithmetic<Sub>},
    {"Mul", fold_arithmetic<Mul>},
    {"Div", fold_arithmetic<Div>},
    {"Mod", fold_arithmetic<Mod>},
    {"Pow", fold_pow},
    {"Min", fold_each<Min>},
    {"Max", fold_each<Max>},
    {"Equal", fold_equal},
    {"Less", fold_less},
    {"LessOrEqual", fold_less_or_equal},
    {"Greater", fold_greater},
    {"GreaterOrEqual", fold_greater_or_equal},
    {"And", fold_and},
    {"Or", fold_or},
    {"Xor", fold_xor},
    {"Where", fold_where},
};

}  // namespace

std::span<const FoldRow> binary_folds() { return kBinaryFolds; }

}  // namespace overtake::onnx
