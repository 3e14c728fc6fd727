#pragma once
// The parts of fold(): one call, and the ops by theme. Inside the importer only.

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/onnx/constant.h"
#include "models/onnx/dims.h"

namespace overtake::onnx {

using Dims = std::vector<std::int64_t>;

// What an op gets: its node and the values of its inputs.
class FoldCall {
 public:
  FoldCall(const Node& folded, std::span<const Constant* const> inputs, Budget& budget)
      : node(folded), inputs_(inputs), budget_(budget) {}

  const Node& node;

  // The input, or a user error that it is missing.
  const Constant& input(std::size_t i) const;
  const Constant* optional_input(std::size_t i) const;
  // Values of an input that must be whole numbers; of one that must be a single one.
  const std::vector<std::int64_t>& integers(std::size_t i) const;
  std::int64_t integer(std::size_t i) const;
  // What came as an attribute in older opsets and comes as an input now; nothing where neither is there.
  std::optional<std::vector<std::int64_t>> attribute_or_input(std::string_view attribute, std::size_t i) const;

  // The values of a tensor attribute.
  Constant read(const Tensor& tensor) const { return read_constant(tensor, budget_, "node " + node.label()); }
  // Zeros, paid from the budget before they are allocated.
  Constant make(Constant::Kind kind, Dims dims) const;
  // The elements of `source`, paid for, with other dimensions; there must be as many.
  Constant with_dims(const Constant& source, Dims dims) const;
  // Pays for work on elements that yields fewer.
  void pay(std::int64_t elements) const { budget_.take(elements, "node " + node.label()); }

  // 0 to rank - 1 from an axis that may count from the end.
  std::size_t axis(std::int64_t axis, std::size_t rank) const;
  // As axis() for each; a user error where one is there twice.
  std::vector<std::size_t> axes(std::span<const std::int64_t> axes, std::size_t rank) const;

  // A user error that names the node.
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    fail_user("node {}: {}; export the model again", node.label(), fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  std::span<const Constant* const> inputs_;
  Budget& budget_;
};

using FoldFunction = std::vector<Constant> (*)(const FoldCall& call);

struct FoldRow {
  std::string_view op;
  FoldFunction function;
};

std::span<const FoldRow> creating_folds();
std::span<const FoldRow> casting_folds();
std::span<const FoldRow> unary_folds();
std::span<const FoldRow> binary_folds();
std::span<const FoldRow> shape_folds();
std::span<const FoldRow> moving_folds();
std::span<const FoldRow> indexing_folds();
std::span<const FoldRow> reducing_folds();

// One result.
std::vector<Constant> only(Constant constant);

// Row-major, in elements.
Dims strides_of(std::span<const std::int64_t> dims);

// Visits the indices of `dims` in row-major order and keeps where each lies in a tensor of the given strides.
class Walk {
 public:
  Walk(Dims dims, Dims strides, std::int64_t start = 0)
      : dims_(std::move(dims)), strides_(std::move(strides)), index_(dims_.size(), 0), at_(start) {}

  std::size_t at() const { return static_cast<std::size_t>(at_); }
  const Dims& index() const { return index_; }
  void next();

 private:
  Dims dims_, strides_, index_;
  std::int64_t at_;
};

// Calls `act(values of to, values of from)`: reals or whole numbers, whichever both have. Kinds are the same.
template <class Act>
void with_values(Constant& to, const Constant& from, const Act& act) {
  if (to.kind == Constant::Kind::real) {
    act(to.reals, from.reals);
  } else {
    act(to.integers, from.integers);
  }
}

// to[i] = from[where(i)] for all elements of `to`.
template <class Where>
void gather_values(Constant& to, const Constant& from, Where where) {
  with_values(to, from, [&](auto& results, const auto& values) {
    for (std::size_t i = 0; i < results.size(); ++i) results[i] = values[where(i)];
  });
}

// The dimensions that both become, ONNX's way (as numpy's); nothing where they do not fit.
std::optional<Dims> broadcast(std::span<const std::int64_t> a, std::span<const std::int64_t> b);
// A walk over `dims`, to which `from` broadcasts, in a tensor of dimensions `from`.
Walk broadcast_walk(std::span<const std::int64_t> from, const Dims& dims);

// A number as whole number: towards zero; NaN becomes 0 and what is too large the largest.
std::int64_t to_integer(double value);
// What a float32 makes of it. Results of arithmetic pass through it: models compute in float32, and floor(x * scale)
// must not differ.
inline double to_single(double value) { return static_cast<double>(static_cast<float>(value)); }

// The kind of constant that holds numbers of a type; nothing for text and what is not read.
std::optional<Constant::Kind> kind_of(ElementType type);
std::string_view kind_name(Constant::Kind kind);
// The kind for the element type that an attribute names ("to", "dtype"); a user error where it names none.
Constant::Kind kind_of_attribute(const FoldCall& call, std::string_view attribute);

}  // namespace overtake::onnx
