// Ops that make tensors from little: constants, ranges, one-hot rows, positions.

#include <algorithm>
#include <cmath>

#include "models/onnx/fold.h"

namespace overtake::onnx {
namespace {

using Kind = Constant::Kind;

void fill(Constant& constant, const Constant& value) {
  if (constant.kind == Kind::real) {
    std::fill(constant.reals.begin(), constant.reals.end(), value.reals.front());
  } else {
    std::fill(constant.integers.begin(), constant.integers.end(), value.integers.front());
  }
}

// One of several attributes holds the value.
std::vector<Constant> fold_constant(const FoldCall& call) {
  for (const Attribute& attribute : call.node.attributes) {
    if (attribute.name == "value" && attribute.kind == Attribute::Kind::tensor)
      return only(call.read(attribute.tensor));
    if (attribute.name == "value_int" && attribute.kind == Attribute::Kind::integer) {
      return only(scalar_constant(attribute.integer));
    }
    if (attribute.name == "value_float" && attribute.kind == Attribute::Kind::real) {
      return only({.kind = Kind::real, .dims = {}, .reals = {static_cast<double>(attribute.real)}, .integers = {}});
    }
    if (attribute.name == "value_ints" && attribute.kind == Attribute::Kind::integers) {
      call.pay(std::ssize(attribute.integers));
      return only(integer_constant(attribute.integers));
    }
    if (attribute.name == "value_floats" && attribute.kind == Attribute::Kind::reals) {
      Constant result = call.make(Kind::real, {std::ssize(attribute.reals)});
      std::copy(attribute.reals.begin(), attribute.reals.end(), result.reals.begin());
      return only(std::move(result));
    }
  }
  call.fail("it has no value that is a tensor of numbers");
}

std::vector<Constant> fold_constant_of_shape(const FoldCall& call) {
  Constant value{.kind = Kind::real, .dims = {1}, .reals = {0}, .integers = {}};
  if (const Attribute* attribute = call.node.find("value")) {
    if (attribute->kind != Attribute::Kind::tensor) call.fail("its value is not a tensor");
    value = call.read(attribute->tensor);
    if (value.elements() != 1) call.fail("its value has {} elements instead of one", value.elements());
  }
  Constant result = call.make(value.kind, call.integers(0));
  fill(result, value);
  return only(std::move(result));
}

// How many numbers are there from `start` to `limit`, which is left out.
std::int64_t range_length(std::int64_t start, std::int64_t limit, std::int64_t delta) {
  if (delta > 0 ? limit <= start : limit >= start) return 0;
  const auto as_unsigned = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const bool rises = delta > 0;
  const std::uint64_t way = rises ? as_unsigned(limit) - as_unsigned(start) : as_unsigned(start) - as_unsigned(limit);
  const std::uint64_t step = rises ? as_unsigned(delta) : 0 - as_unsigned(delta);
  const std::uint64_t length = way / step + (way % step != 0 ? 1 : 0);
  return static_cast<std::int64_t>(std::min(length, as_unsigned(kMostElements) + 1));
}

std::int64_t range_length(double start, double limit, double delta) {
  return to_integer(std::max(0.0, std::ceil((limit - start) / delta)));
}

std::vector<Constant> fold_range(const FoldCall& call) {
  const Constant &start = call.input(0), &limit = call.input(1), &delta = call.input(2);
  for (const Constant* input : {&start, &limit, &delta}) {
    if (input->elements() != 1 || input->kind != start.kind || input->kind == Kind::boolean) {
      call.fail("start, limit and delta are not three numbers of one kind");
    }
  }
  if (delta.real_at(0) == 0) call.fail("delta is 0");
  if (start.kind == Kind::integer) {
    const std::int64_t first = start.integers[0], step = delta.integers[0];
    Constant result = call.make(Kind::integer, {range_length(first, limit.integers[0], step)});
    for (std::size_t i = 0; i < result.integers.size(); ++i) {
      // Each is between start and limit, but i * step alone may be more than fits: unsigned numbers wrap around.
      result.integers[i] =
          static_cast<std::int64_t>(static_cast<std::uint64_t>(first) + i * static_cast<std::uint64_t>(step));
    }
    return only(std::move(result));
  }
  const double first = start.reals[0], step = delta.reals[0];
  if (!std::isfinite(first) || !std::isfinite(limit.reals[0]) || !std::isfinite(step)) {
    call.fail("from {} to {} by {} is no range", first, limit.reals[0], step);
  }
  Constant result = call.make(Kind::real, {range_length(first, limit.reals[0], step)});
  for (std::size_t i = 0; i < result.reals.size(); ++i) {
    result.reals[i] = to_single(first + static_cast<double>(i) * step);
  }
  return only(std::move(result));
}

std::vector<Constant> fold_eye_like(const FoldCall& call) {
  const Constant& input = call.input(0);
  if (input.dims.size() != 2) call.fail("its input has {} dimensions instead of 2", input.dims.size());
  Kind kind = input.kind;
  if (call.node.find("dtype") != nullptr) kind = kind_of_attribute(call, "dtype");
  const std::int64_t k = call.node.integer("k", 0);
  Constant result = call.make(kind, input.dims);
  const std::int64_t rows = input.dims[0], columns = input.dims[1];
  for (std::int64_t row = 0; row < rows; ++row) {
    if (k < -row || k >= columns - row) continue;
    const auto at = static_cast<std::size_t>(row * columns + row + k);
    if (kind == Kind::real) {
      result.reals[at] = 1;
    } else {
      result.integers[at] = 1;
    }
  }
  return only(std::move(result));
}

// indices [a, b], depth d, axis -1 -> [a, b, d]
std::vector<Constant> fold_one_hot(const FoldCall& call) {
  const Constant &indices = call.input(0), &depth_input = call.input(1), &values = call.input(2);
  if (depth_input.elements() != 1 || depth_input.kind == Kind::boolean) call.fail("depth is not a single number");
  if (values.dims.size() != 1 || values.elements() != 2) call.fail("values is not the pair of off and on");
  if (indices.kind == Kind::boolean) call.fail("indices are booleans");
  const std::int64_t depth = to_integer(depth_input.real_at(0));
  const std::size_t axis = call.axis(call.node.integer("axis", -1), indices.dims.size() + 1);

  Dims dims = indices.dims;
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), depth);
  Constant result = call.make(values.kind, dims);
  Dims strides = strides_of(indices.dims);
  strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(axis), 0);
  Walk walk(dims, std::move(strides));
  gather_values(result, values, [&](std::size_t) {
    const double index = std::trunc(indices.real_at(walk.at()));
    const auto place = static_cast<double>(walk.index()[axis]);
    walk.next();
    return std::size_t{index == place || index + static_cast<double>(depth) == place};
  });
  return only(std::move(result));
}

// [a, b] -> [2, n]: the index of each element that is not 0. Of a single number: [0, n].
std::vector<Constant> fold_non_zero(const FoldCall& call) {
  const Constant& input = call.input(0);
  call.pay(input.elements());
  std::int64_t found = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(input.elements()); ++i) found += input.real_at(i) != 0 ? 1 : 0;

  Constant result = call.make(Kind::integer, {std::ssize(input.dims), found});
  std::size_t column = 0;
  Walk walk(input.dims, strides_of(input.dims));
  for (std::size_t i = 0; i < static_cast<std::size_t>(input.elements()); ++i, walk.next()) {
    if (input.real_at(i) == 0) continue;
    for (std::size_t d = 0; d < input.dims.size(); ++d) {
      result.integers[d * static_cast<std::size_t>(found) + column] = walk.index()[d];
    }
    ++column;
  }
  return only(std::move(result));
}

constexpr FoldRow kCreatingFolds[] = {
    {"Constant", fold_constant}, {"ConstantOfShape", fold_constant_of_shape},
    {"Range", fold_range},       {"EyeLike", fold_eye_like},
    {"OneHot", fold_one_hot},    {"NonZero", fold_non_zero},
};

}  // namespace

std::span<const FoldRow> creating_folds() { return kCreatingFolds; }

}  // namespace overtake::onnx
