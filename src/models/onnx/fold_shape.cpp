// Ops on shapes: what changes the dimensions and leaves the elements in their order.

#include <algorithm>
#include <numeric>

#include "models/onnx/fold.h"

namespace overtake::onnx {
namespace {

std::vector<Constant> fold_identity(const FoldCall& call) {
  return only(call.with_dims(call.input(0), call.input(0).dims));
}

// The dimensions from `start` to before `end`, both clamped.
std::vector<Constant> fold_shape(const FoldCall& call) {
  const Dims& dims = call.input(0).dims;
  const std::int64_t rank = std::ssize(dims);
  const auto place = [&](std::int64_t at) { return std::clamp(at < 0 ? at + rank : at, std::int64_t{0}, rank); };
  const std::int64_t start = place(call.node.integer("start", 0)), end = place(call.node.integer("end", rank));
  if (start >= end) return only(integer_constant({}));
  return only(integer_constant({dims.begin() + start, dims.begin() + end}));
}

std::vector<Constant> fold_size(const FoldCall& call) { return only(scalar_constant(call.input(0).elements())); }

// 0 keeps the dimension of that place (unless allowzero), one -1 takes what is left.
std::vector<Constant> fold_reshape(const FoldCall& call) {
  const Constant& input = call.input(0);
  Dims dims = call.integers(1);
  if (dims.size() > kMostRank) call.fail("shape {} has too many dimensions", shape_text(dims));
  const bool keeps_zero = call.node.integer("allowzero", 0) != 0;
  std::optional<std::size_t> open;
  Dims known;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == 0 && !keeps_zero) {
      if (d >= input.dims.size())
        call.fail("shape {} keeps a dimension that {} has not", shape_text(dims), shape_text(input.dims));
      dims[d] = input.dims[d];
    }
    if (dims[d] == -1) {
      if (open) call.fail("shape {} leaves two dimensions open", shape_text(dims));
      open = d;
    } else {
      known.push_back(dims[d]);
    }
  }
  if (open) {
    const std::int64_t rest = count_elements(known).value_or(0);
    if (rest == 0 || input.elements() % rest != 0) {
      call.fail("{} elements do not fit shape {}", input.elements(), shape_text(dims));
    }
    dims[*open] = input.elements() / rest;
  }
  return only(call.with_dims(input, std::move(dims)));
}

// [a, b, c, d], axis 2 -> [a * b, c * d]
std::vector<Constant> fold_flatten(const FoldCall& call) {
  const Constant& input = call.input(0);
  const std::int64_t rank = std::ssize(input.dims);
  std::int64_t axis = call.node.integer("axis", 1);
  if (axis < -rank || axis > rank) call.fail("axis {} of a tensor of {} dimensions", axis, rank);
  if (axis < 0) axis += rank;
  const auto middle = input.dims.begin() + axis;
  const auto product = [](auto first, auto last) {
    return std::accumulate(first, last, std::int64_t{1}, std::multiplies<>());
  };
  return only(call.with_dims(input, {product(input.dims.begin(), middle), product(middle, input.dims.end())}));
}

std::vector<Constant> fold_squeeze(const FoldCall& call) {
  const Constant& input = call.input(0);
  std::vector<bool> drops(input.dims.size(), false);
  if (const auto given = call.attribute_or_input("axes", 1)) {
    for (const std::size_t axis : call.axes(*given, input.dims.size())) {
      if (input.dims[axis] != 1) call.fail("dimension {} of {} is not 1", axis, shape_text(input.dims));
      drops[axis] = true;
    }
  } else {
    for (std::size_t d = 0; d < drops.size(); ++d) drops[d] = input.dims[d] == 1;
  }
  Dims dims;
  for (std::size_t d = 0; d < drops.size(); ++d) {
    if (!drops[d]) dims.push_back(input.dims[d]);
  }
  return only(call.with_dims(input, std::move(dims)));
}

std::vector<Constant> fold_unsqueeze(const FoldCall& call) {
  const Constant& input = call.input(0);
  const auto given = call.attribute_or_input("axes", 1);
  if (!given) call.fail("it has no axes");
  const std::size_t rank = input.dims.size() + given->size();
  if (rank > kMostRank) call.fail("a result of {} dimensions", rank);
  Dims dims(rank, -1);
  for (const std::size_t axis : call.axes(*given, rank)) dims[axis] = 1;
  auto next = input.dims.begin();
  for (std::int64_t& dim : dims) {
    if (dim == -1) dim = *next++;
  }
  return only(call.with_dims(input, std::move(dims)));
}

constexpr FoldRow kShapeFolds[] = {
    {"Identity", fold_identity}, {"Shape", fold_shape},     {"Size", fold_size},           {"Reshape", fold_reshape},
    {"Flatten", fold_flatten},   {"Squeeze", fold_squeeze}, {"Unsqueeze", fold_unsqueeze},
};

}  // namespace

std::span<const FoldRow> shape_folds() { return kShapeFolds; }

}  // namespace overtake::onnx
