#pragma once
// One node folded, and its results compared: what the tests of fold() share.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/onnx/constant.h"
#include "onnx_writer.h"
#include "temporary_folder.h"

namespace overtake::onnx {

using Kind = Constant::Kind;
using Dims = std::vector<std::int64_t>;
using write::Message;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

inline Constant reals(Dims dims, std::vector<double> values) {
  return {.kind = Kind::real, .dims = std::move(dims), .reals = std::move(values), .integers = {}};
}
inline Constant reals(std::vector<double> values) { return reals({std::ssize(values)}, values); }
inline Constant real(double value) { return reals({}, {value}); }
inline Constant integers(Dims dims, std::vector<std::int64_t> values) {
  return {.kind = Kind::integer, .dims = std::move(dims), .reals = {}, .integers = std::move(values)};
}
inline Constant integers(std::vector<std::int64_t> values) { return integers({std::ssize(values)}, values); }
inline Constant integer(std::int64_t value) { return scalar_constant(value); }
inline Constant booleans(Dims dims, std::vector<std::int64_t> values) {
  return {.kind = Kind::boolean, .dims = std::move(dims), .reals = {}, .integers = std::move(values)};
}
inline Constant booleans(std::vector<std::int64_t> values) { return booleans({std::ssize(values)}, values); }
inline const Constant kAbsent = reals({-1}, {});  // stands for an input that is not there

// One node of a file, read as a file is.
inline Node node_of(const std::string& op, std::size_t inputs, const std::vector<Message>& attributes,
                    std::size_t outputs) {
  std::vector<std::string> names(inputs, "x"), results;
  for (std::size_t i = 0; i < outputs; ++i) results.push_back("y" + std::to_string(i));
  return write::parsed(write::model({.nodes = {write::node(op, names, results, attributes, "n")},
                                     .inputs = {write::value("x", {})}}))
      .nodes.at(0);
}

inline std::vector<Constant> fold_all(const std::string& op, const std::vector<Constant>& inputs,
                                      const std::vector<Message>& attributes = {}, std::size_t outputs = 1) {
  const Node node = node_of(op, inputs.size(), attributes, outputs);
  EXPECT_TRUE(is_foldable(node)) << op;
  std::vector<const Constant*> pointers;
  for (const Constant& input : inputs) pointers.push_back(input.dims == kAbsent.dims ? nullptr : &input);
  Budget budget(0);
  return fold(node, pointers, 18, budget);
}

inline Constant folded(const std::string& op, const std::vector<Constant>& inputs,
                       const std::vector<Message>& attributes = {}) {
  std::vector<Constant> results = fold_all(op, inputs, attributes);
  EXPECT_EQ(results.size(), 1u);
  return std::move(results.at(0));
}

// Also checks that the error names the node.
inline std::string error_of(const std::string& op, const std::vector<Constant>& inputs,
                            const std::vector<Message>& attributes = {}, std::size_t outputs = 1) {
  const std::string text = user_error([&] { fold_all(op, inputs, attributes, outputs); });
  EXPECT_TRUE(says(text, {"node " + op + " 'n'", ";"}));
  return text;
}

inline std::string shown(const Constant& constant) {
  return constant.kind == Kind::real
             ? fmt::format("real {} {}", fmt::join(constant.dims, "x"), fmt::join(constant.reals, " "))
             : fmt::format("{} {} {}", constant.kind == Kind::integer ? "integer" : "boolean",
                           fmt::join(constant.dims, "x"), fmt::join(constant.integers, " "));
}

// Equal to the last bit; NaN equals NaN.
inline ::testing::AssertionResult same(const Constant& actual, const Constant& expected) {
  const auto same_real = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  if (actual.kind == expected.kind && actual.dims == expected.dims && actual.integers == expected.integers &&
      std::equal(actual.reals.begin(), actual.reals.end(), expected.reals.begin(), expected.reals.end(), same_real)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "(" << shown(actual) << ") is not (" << shown(expected) << ")";
}

inline Message ints(std::string_view name, const std::vector<std::int64_t>& values) {
  return write::attribute(name, values);
}

}  // namespace overtake::onnx
