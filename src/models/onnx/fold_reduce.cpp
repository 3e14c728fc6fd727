// Ops along dimensions: sums, extremes, running sums.

#include <cmath>
#include <limits>

#include "models/onnx/fold.h"

namespace overtake::onnx {
namespace {

using Kind = Constant::Kind;

// `start` is the result of no elements.
struct Sum {
  static constexpr bool takes_booleans = false, takes_nothing = true;
  static constexpr double real_start = 0;
  static constexpr std::int64_t start = 0;
  static double join(double a, double b) { return a + b; }
  static std::int64_t join(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
};

struct Product {
  static constexpr bool takes_booleans = false, takes_nothing = true;
  static constexpr double real_start = 1;
  static constexpr std::int64_t start = 1;
  static double join(double a, double b) { return a * b; }
  static std::int64_t join(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }
};

// NaN wins. Which whole number is the least depends on a type that a constant does not keep.
struct Greatest {
  static constexpr bool takes_booleans = true, takes_nothing = false;
  static constexpr double real_start = -std::numeric_limits<double>::infinity();
  static constexpr std::int64_t start = std::numeric_limits<std::int64_t>::min();
  static double join(double a, double b) { return a > b || std::isnan(a) ? a : b; }
  static std::int64_t join(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
};

struct Least {
  static constexpr bool takes_booleans = true, takes_nothing = false;
  static constexpr double real_start = std::numeric_limits<double>::infinity();
  static constexpr std::int64_t start = std::numeric_limits<std::int64_t>::max();
  static double join(double a, double b) { return a < b || std::isnan(a) ? a : b; }
  static std::int64_t join(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
};

// What a reduction leaves: which dimensions go, and the result's shape with ones in their place.
struct Reduction {
  std::vector<bool> goes;
  Dims kept_dims;
  std::int64_t joined = 1;  // elements per result
};

Reduction reduction_of(const FoldCall& call, const Constant& input) {
  const std::size_t rank = input.dims.size();
  const std::vector<std::int64_t> given = call.attribute_or_input("axes", 1).value_or(std::vector<std::int64_t>());
  const bool all = given.empty() && call.node.integer("noop_with_empty_axes", 0) == 0;
  Reduction reduction{.goes = std::vector<bool>(rank, all), .kept_dims = input.dims};
  for (const std::size_t axis : call.axes(given, rank)) reduction.goes[axis] = true;
  for (std::size_t d = 0; d < rank; ++d) {
    if (!reduction.goes[d]) continue;
    reduction.joined *= input.dims[d];
    reduction.kept_dims[d] = 1;
  }
  return reduction;
}

Dims final_dims(const FoldCall& call, const Reduction& reduction) {
  if (call.node.integer("keepdims", 1) != 0) return reduction.kept_dims;
  Dims dims;
  for (std::size_t d = 0; d < reduction.goes.size(); ++d) {
    if (!reduction.goes[d]) dims.push_back(reduction.kept_dims[d]);
  }
  return dims;
}

template <class Join>
Constant reduce(const FoldCall& call, const Constant& input, const Reduction& reduction) {
  if (input.kind == Kind::boolean && !Join::takes_booleans) call.fail("its input holds booleans instead of numbers");
  if (input.kind != Kind::real && !Join::takes_nothing && reduction.joined == 0)
    call.fail("there is nothing to compare");
  call.pay(input.elements());
  Constant result = call.make(input.kind, final_dims(call, reduction));
  for (double& value : result.reals) value = Join::real_start;
  for (std::int64_t& value : result.integers) value = Join::start;

  Dims strides = strides_of(reduction.kept_dims);
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (reduction.goes[d]) strides[d] = 0;
  }
  Walk walk(input.dims, std::move(strides));
  with_values(result, input, [&](auto& results, const auto& values) {
    for (const auto value : values) {
      results[walk.at()] = Join::join(results[walk.at()], value);
      walk.next();
    }
  });
  return result;
}

template <class Join>
std::vector<Constant> fold_reduce(const FoldCall& call) {
  const Constant& input = call.input(0);
  Constant result = reduce<Join>(call, input, reduction_of(call, input));
  for (double& value : result.reals) value = to_single(value);
  return only(std::move(result));
}

std::vector<Constant> fold_reduce_mean(const FoldCall& call) {
  const Constant& input = call.input(0);
  const Reduction reduction = reduction_of(call, input);
  if (input.kind != Kind::real && reduction.joined == 0) call.fail("there is nothing to take the mean of");
  Constant result = reduce<Sum>(call, input, reduction);
  for (double& value : result.reals) value = to_single(value / static_cast<double>(reduction.joined));
  for (std::int64_t& value : result.integers) value /= reduction.joined;
  return only(std::move(result));
}

// A line of a tensor along an axis: `dim` elements from `start`, `stride` apart.
struct Lines {
  std::size_t dim = 0, stride = 1, count = 0;

  std::size_t start(std::size_t line) const { return line / stride * stride * dim + line % stride; }
};

Lines lines_of(const Constant& input, std::size_t axis) {
  Lines lines{.dim = static_cast<std::size_t>(input.dims[axis]),
              .stride = static_cast<std::size_t>(strides_of(input.dims)[axis]),
              .count = 1};
  for (std::size_t d = 0; d < input.dims.size(); ++d) {
    if (d != axis) lines.count *= static_cast<std::size_t>(input.dims[d]);
  }
  return lines;
}

// Of equal ones the first, or the last where select_last_index. NaN is the largest.
template <class Values>
std::int64_t largest_of(const Values& values, const Lines& lines, std::size_t line, bool takes_last) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < lines.dim; ++i) {
    const auto value = values[lines.start(line) + i * lines.stride];
    const auto held = values[lines.start(line) + best * lines.stride];
    const bool held_is_nan = held != held, is_nan = value != value;
    if (held_is_nan ? is_nan && takes_last : is_nan || value > held || (takes_last && value == held)) best = i;
  }
  return static_cast<std::int64_t>(best);
}

std::vector<Constant> fold_arg_max(const FoldCall& call) {
  const Constant& input = call.input(0);
  if (input.kind == Kind::boolean) call.fail("its input holds booleans instead of numbers");
  const std::size_t axis = call.axis(call.node.integer("axis", 0), input.dims.size());
  const bool takes_last = call.node.integer("select_last_index", 0) != 0;
  Dims dims = input.dims;
  dims[axis] = 1;
  if (call.node.integer("keepdims", 1) == 0) dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
  call.pay(input.elements());
  Constant result = call.make(Kind::integer, std::move(dims));
  const Lines lines = lines_of(input, axis);
  if (lines.dim == 0 && lines.count > 0) call.fail("there is nothing to compare");
  for (std::size_t line = 0; line < lines.count; ++line) {
    result.integers[line] = input.kind == Kind::real ? largest_of(input.reals, lines, line, takes_last)
                                                     : largest_of(input.integers, lines, line, takes_last);
  }
  return only(std::move(result));
}

std::vector<Constant> fold_cum_sum(const FoldCall& call) {
  const Constant& input = call.input(0);
  if (input.kind == Kind::boolean) call.fail("its input holds booleans instead of numbers");
  const std::size_t axis = call.axis(call.integer(1), input.dims.size());
  const bool leaves_own = call.node.integer("exclusive", 0) != 0, from_end = call.node.integer("reverse", 0) != 0;
  Constant result = call.make(input.kind, input.dims);
  const Lines lines = lines_of(input, axis);
  with_values(result, input, [&](auto& results, const auto& values) {
    for (std::size_t line = 0; line < lines.count; ++line) {
      auto sum = typename std::decay_t<decltype(values)>::value_type{};
      for (std::size_t i = 0; i < lines.dim; ++i) {
        const std::size_t at = lines.start(line) + (from_end ? lines.dim - 1 - i : i) * lines.stride;
        const auto before = sum;
        sum = Sum::join(sum, values[at]);
        results[at] = leaves_own ? before : sum;
      }
    }
  });
  for (double& value : result.reals) value = to_single(value);
  return only(std::move(result));
}

constexpr FoldRow kReducingFolds[] = {
    {"ReduceSum", fold_reduce<Sum>},   {"ReduceProd", fold_reduce<Product>}, {"ReduceMax", fold_reduce<Greatest>},
    {"ReduceMin", fold_reduce<Least>}, {"ReduceMean", fold_reduce_mean},     {"ArgMax", fold_arg_max},
    {"CumSum", fold_cum_sum},
};

}  // namespace

std::span<const FoldRow> reducing_folds() { return kReducingFolds; }

}  // namespace overtake::onnx
