// What the lowering of one node asks of the importer, and the table of ops that can be lowered.

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace overtake::onnx {

Item& Call::item(std::size_t i) {
  if (!has(i)) fail_unsupported_node("input {} is absent", i);
  return importer.item(node.inputs[i]);
}

Value Call::value(std::size_t i, const char* role) {
  const Value v = importer.value_of(item(i), node, role);
  if (model().dtype(v) != DType::f32) fail_unsupported_node("arithmetic on token ids");
  return v;
}

const Constant& Call::known(std::size_t i, const char* what) {
  auto constant = importer.known_of(item(i));
  if (constant == nullptr) fail_unsupported_node("its {} depends on the data", what);
  held_.push_back(std::move(constant));
  return *held_.back();
}

std::vector<std::int64_t> Call::integers(std::size_t i, const char* what) {
  const Constant& c = known(i, what);
  if (c.kind == Constant::Kind::real) fail_unsupported_node("its {} are no whole numbers", what);
  return c.integers;
}

std::optional<double> Call::scalar(std::size_t i) {
  if (!has(i) || importer.item(node.inputs[i]).kind != Item::Kind::known) return {};
  const Constant& c = *importer.item(node.inputs[i]).known;
  if (c.elements() != 1) return {};
  return c.real_at(0);
}

std::optional<double> Call::setting(std::size_t i) {
  if (!has(i)) return {};
  const auto constant = importer.known_of(item(i));
  if (constant == nullptr || constant->elements() != 1) return {};
  return constant->real_at(0);
}

std::vector<std::int64_t> Call::sizes(const char* attribute, std::size_t count, std::int64_t fallback) {
  constexpr std::int64_t kMost = 1 << 20;
  const std::vector<std::int64_t> values = node.integers(attribute, std::vector<std::int64_t>(count, fallback));
  if (values.size() != count || std::ranges::any_of(values, [](std::int64_t v) { return v < 0 || v > kMost; }))
    fail_user("{}: {}: its {} are [{}]; {} numbers from 0 to {} are needed", importer.file().path, node.label(),
              attribute, fmt::join(values, ", "), count, kMost);
  return values;
}

std::int64_t Call::axis(std::int64_t given, std::size_t rank) const {
  const auto r = static_cast<std::int64_t>(rank);
  if (given < -r || given >= r)
    fail_user("{}: {}: axis {} of a tensor of {} dimensions", importer.file().path, node.label(), given, rank);
  return given < 0 ? given + r : given;
}

std::vector<std::int64_t> Call::axes(std::size_t input, std::size_t rank) {
  std::vector<std::int64_t> given = node.integers("axes", {});
  if (has(input)) given = integers(input, "axes");
  for (std::int64_t& a : given) a = axis(a, rank);
  std::ranges::sort(given);
  given.erase(std::ranges::unique(given).begin(), given.end());
  return given;
}

void Call::give(Value v, std::size_t output) {
  if (output < node.outputs.size() && !node.outputs[output].empty()) importer.give(node.outputs[output], v);
}

void Call::pass(std::size_t input) {
  const Item x = item(input);
  importer.give(node.outputs.at(0), x);
}

Value Call::number(double number) {
  const auto x = static_cast<float>(number);
  return model().constant(Shape{1}, {&x, 1}, fmt::format("{}.constant", name()));
}

std::vector<std::int64_t> Call::dims_of(Value x) {
  const Shape& s = model().shape(x);
  return {s.span().begin(), s.span().end()};
}

Value Call::reshaped(Value x, const std::vector<std::int64_t>& dims) {
  check_dims(dims);
  if (dims_of(x) == dims) return x;
  return model().reshape(x, dims.empty() ? std::vector<std::int64_t>{1} : dims, name());
}

Lower lowering_of(const std::string& op) {
  static const LowerTable table = [] {
    LowerTable all;
    add_elementwise(all);
    add_movement(all);
    add_layers(all);
    add_recurrent(all);
    return all;
  }();
  const auto it = table.find(op);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace overtake::onnx
