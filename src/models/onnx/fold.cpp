#include "models/onnx/fold.h"

#include <algorithm>
#include <limits>

namespace overtake::onnx {
namespace {

// Null where the op is not known.
FoldFunction find_fold(const Node& node) {
  if (!node.domain.empty()) return nullptr;
  for (const std::span<const FoldRow> theme : {creating_folds(), casting_folds(), unary_folds(), binary_folds(),
                                               shape_folds(), moving_folds(), indexing_folds(), reducing_folds()}) {
    const auto row =
        std::find_if(theme.begin(), theme.end(), [&](const FoldRow& candidate) { return candidate.op == node.op; });
    if (row != theme.end()) return row->function;
  }
  return nullptr;
}

}  // namespace

bool is_foldable(const Node& node) { return find_fold(node) != nullptr; }

std::vector<Constant> fold(const Node& node, std::span<const Constant* const> inputs, std::int64_t opset,
                           Budget& budget) {
  const FoldFunction function = find_fold(node);
  OVERTAKE_CHECK(function != nullptr, "{} is not foldable", node.label());
  OVERTAKE_CHECK(opset >= kOldestOpset && opset <= kNewestOpset, "opset {}", opset);
  return function(FoldCall(node, inputs, budget));
}

const Constant* FoldCall::optional_input(std::size_t i) const { return i < inputs_.size() ? inputs_[i] : nullptr; }

const Constant& FoldCall::input(std::size_t i) const {
  const Constant* constant = optional_input(i);
  if (constant == nullptr) fail("input {} is missing", i);
  return *constant;
}

const std::vector<std::int64_t>& FoldCall::integers(std::size_t i) const {
  const Constant& constant = input(i);
  if (constant.kind != Constant::Kind::integer || constant.dims.size() > 1) {
    fail("input {} is not a list of whole numbers", i);
  }
  return constant.integers;
}

std::int64_t FoldCall::integer(std::size_t i) const {
  const std::vector<std::int64_t>& values = integers(i);
  if (values.size() != 1) fail("input {} is not a single number", i);
  return values.front();
}

std::optional<std::vector<std::int64_t>> FoldCall::attribute_or_input(std::string_view attribute, std::size_t i) const {
  if (node.find(attribute) != nullptr) return node.integers(attribute, {});
  if (optional_input(i) == nullptr) return std::nullopt;
  return integers(i);
}

Constant FoldCall::make(Constant::Kind kind, Dims dims) const {
  const std::optional<std::int64_t> elements = count_elements(dims);
  if (!elements) fail("a result of shape {} is no tensor", shape_text(dims));
  pay(*elements);
  Constant constant{.kind = kind, .dims = std::move(dims), .reals = {}, .integers = {}};
  if (kind == Constant::Kind::real) {
    constant.reals.resize(static_cast<std::size_t>(*elements));
  } else {
    constant.integers.resize(static_cast<std::size_t>(*elements));
  }
  return constant;
}

Constant FoldCall::with_dims(const Constant& source, Dims dims) const {
  if (count_elements(dims) != source.elements()) {
    fail("{} elements do not fit shape {}", source.elements(), shape_text(dims));
  }
  pay(source.elements());
  return {.kind = source.kind, .dims = std::move(dims), .reals = source.reals, .integers = source.integers};
}

std::size_t FoldCall::axis(std::int64_t axis, std::size_t rank) const {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) fail("axis {} of a tensor of {} dimensions", axis, rank);
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

std::vector<std::size_t> FoldCall::axes(std::span<const std::int64_t> axes, std::size_t rank) const {
  std::vector<bool> seen(rank, false);
  std::vector<std::size_t> found;
  for (const std::int64_t candidate : axes) {
    found.push_back(axis(candidate, rank));
    if (seen[found.back()]) fail("axis {} is there twice", found.back());
    seen[found.back()] = true;
  }
  return found;
}

std::vector<Constant> only(Constant constant) {
  std::vector<Constant> results;
  results.push_back(std::move(constant));
  return results;
}

Dims strides_of(std::span<const std::int64_t> dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max(dims[d], std::int64_t{1});
  return strides;
}

void Walk::next() {
  for (std::size_t d = dims_.size(); d-- > 0;) {
    at_ += strides_[d];
    if (++index_[d] < dims_[d]) return;
    at_ -= strides_[d] * dims_[d];
    index_[d] = 0;
  }
}

std::optional<Dims> broadcast(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  if (a.size() < b.size()) std::swap(a, b);
  Dims dims(a.begin(), a.end());
  for (std::size_t d = 0; d < b.size(); ++d) {
    std::int64_t& dim = dims[a.size() - b.size() + d];
    if (dim == 1) {
      dim = b[d];
    } else if (b[d] != 1 && b[d] != dim) {
      return std::nullopt;
    }
  }
  return dims;
}

Walk broadcast_walk(std::span<const std::int64_t> from, const Dims& dims) {
  const Dims own = strides_of(from);
  Dims strides(dims.size(), 0);
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1) strides[dims.size() - from.size() + d] = own[d];
  }
  return Walk(dims, std::move(strides));
}

std::int64_t to_integer(double value) {
  constexpr auto largest = std::numeric_limits<std::int64_t>::max(),
                 smallest = std::numeric_limits<std::int64_t>::min();
  if (value != value) return 0;
  if (value >= 0x1p63) return largest;
  if (value <= -0x1p63) return smallest;
  return static_cast<std::int64_t>(value);
}

std::optional<Constant::Kind> kind_of(ElementType type) {
  switch (type) {
    case ElementType::undefined:
    case ElementType::text:
      return std::nullopt;
    case ElementType::f16:
    case ElementType::bf16:
    case ElementType::f32:
    case ElementType::f64:
      return Constant::Kind::real;
    case ElementType::boolean:
      return Constant::Kind::boolean;
    default:
      return Constant::Kind::integer;
  }
}

std::string_view kind_name(Constant::Kind kind) {
  switch (kind) {
    case Constant::Kind::real:
      return "real numbers";
    case Constant::Kind::integer:
      return "whole numbers";
    default:
      return "booleans";
  }
}

}  // namespace overtake::onnx
