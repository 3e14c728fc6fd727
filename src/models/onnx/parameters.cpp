// The file's weights as parameters of the model: what trains, what it is called, and what is shared.
//
// Exporters store equal tensors once (all fresh biases are equal), fold transposes, and then lose names. So a parameter
// is told by the operator call that a node comes from, as far as the file records that (the dynamo exporter does), by
// the stored tensor's own name otherwise, and by the module of its node where it has lost that too. Two tensors are one
// parameter only where one of these says so; where none can tell, the model is refused.

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "models/onnx/importer.h"
#include "models/onnx/parameter_names.h"
#include "models/onnx/recorded_call.h"

namespace overtake::onnx {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

NamedTensor named(const std::string& name, const Tensor& t, Budget& budget) {
  if (t.type == ElementType::f32) return {name, StoredType::f32, t.dims, t.bytes, t.owner};
  const Constant c = read_constant(t, budget, name);
  std::vector<float> values(c.reals.begin(), c.reals.end());
  return owning_tensor(name, StoredType::f32, t.dims, std::as_bytes(std::span(values)));
}

// In files a parameter has the shape that it came in.
std::optional<Shape> stored_shape(const std::vector<std::int64_t>& dims, const Shape& shape) {
  if (std::ranges::equal(dims, shape.span())) return {};
  check_dims(dims);
  return Shape(dims);
}

float float_at(const NamedTensor& t, std::size_t i) {
  float x;
  std::memcpy(&x, t.bytes.data() + i * sizeof x, sizeof x);
  return x;
}

// [rows, columns] -> [columns, rows]
NamedTensor transposed(const NamedTensor& t) {
  const auto rows = static_cast<std::size_t>(t.dims[0]), columns = static_cast<std::size_t>(t.dims[1]);
  std::vector<float> values(rows * columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) values[j * rows + i] = float_at(t, i * columns + j);
  return owning_tensor(t.name, StoredType::f32, {t.dims[1], t.dims[0]}, std::as_bytes(std::span(values)));
}

// The first of the slices along an axis if all are equal, else all of them.
Constant first_of_equal(Constant c, std::size_t axis) {
  std::size_t inner = 1;
  for (std::size_t i = axis + 1; i < c.dims.size(); ++i) inner *= static_cast<std::size_t>(c.dims[i]);
  const auto extent = static_cast<std::size_t>(c.dims[axis]), count = static_cast<std::size_t>(c.elements());
  const auto first = [&](auto& values) {
    using Values = std::remove_reference_t<decltype(values)>;
    Values kept;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t place = i / inner % extent, of_first = i - place * inner;
      if (values[i] != values[of_first]) return false;
      if (place == 0) kept.push_back(values[i]);
    }
    values = std::move(kept);
    return true;
  };
  if (c.kind == Constant::Kind::real ? first(c.reals) : first(c.integers)) c.dims[axis] = 1;
  return c;
}

}  // namespace

// Counts who uses each stored tensor, and collects what the recorded calls name.
void Importer::look_at_uses() {
  for (const Node& node : file_.nodes) {
    for (const std::string& input : node.inputs) ++uses_[input];
    for (std::string& name : parameters_of_call(node.origin)) called_.insert(std::move(name));
    has_origins_ = has_origins_ || !node.origin.empty();
    if (!node.origin.empty()) makers_.emplace(recorded_call(node.origin).result, &node);
    if (node.op == "BatchNormalization") (is_training_norm(node) ? has_training_norm_ : has_evaluated_norm_) = true;
  }
}

// A number of the formula, and not a parameter of one element.
bool Importer::is_number(const Tensor& t) const {
  const bool is_one = t.dims.empty() || (t.dims.size() == 1 && t.dims[0] == 1);
  if (!is_one || (file_.facts && file_.facts->of(t.name) != TrainingFacts::Status::constant)) return false;
  if (file_.signature) {
    const SignatureTensor* listed = file_.signature->of_name(t.name);
    return listed == nullptr || listed->kind != SignatureTensor::Kind::parameter;
  }
  return is_generated_name(t.name) || (has_origins_ && !contains(t.name, ".") && !called_.contains(mangled(t.name)));
}

bool Importer::is_generated_name(const std::string& name) const {
  if (file_.signature) return file_.signature->of_name(name) == nullptr;
  if (name.starts_with("onnx::") || name.starts_with("/") || name.starts_with("Constant") || name.starts_with("val_"))
    return true;
  if (!has_origins_ || contains(name, ".")) return false;
  // torch.export calls a folded result by its operator and a number.
  constexpr std::string_view kOperators[] = {
      "_to_copy", "add",       "arange", "bitwise",          "cat",     "clone",  "cos",       "cumsum",
      "div",      "embedding", "eq",     "expand",           "full",    "index",  "lift",      "masked",
      "mul",      "neg",       "ones",   "permute",          "pow",     "rsub",   "select",    "sin",
      "slice",    "squeeze",   "sub",    "transpose",        "tril",    "triu",   "unsqueeze", "view",
      "where",    "zeros",     "scalar", "_tensor_constant", "reshape", "_unsafe"};
  return std::ranges::any_of(kOperators, [&](std::string_view op) { return name.starts_with(op); });
}

std::string Importer::layer_name(const Node& node) const {
  if (!node.scope.empty()) return node.scope;
  if (!node.name.empty()) return node.name;
  return node.outputs.empty() ? node.op : node.outputs[0];
}

Importer::Placed Importer::place(const ParameterName& name, const Shape& shape, NamedTensor values,
                                 bool stored_transposed) {
  const std::string unique = claimed_name(name, values);
  values.name = unique;
  if (const auto it = parameters_.find(unique); it != parameters_.end()) {
    const Made& known = it->second;
    const bool is_turned = known.stored_transposed != stored_transposed;
    const Shape wanted = is_turned ? Shape{shape[1], shape[0]} : shape;
    if (model_.shape(known.value) != wanted)
      fail_unsupported_node("parameter {} is {} here and {} elsewhere", unique, to_string(wanted),
                            to_string(model_.shape(known.value)));
    return {known.value, is_turned};
  }
  const Value p = model_.parameter({shape.span().begin(), shape.span().end()}, {}, unique, stored_transposed,
                                   stored_transposed ? std::nullopt : stored_shape(values.dims, shape));
  parameters_[unique] = {p, name.stored, values_.size(), stored_transposed, name.is_guess};
  values_.push_back(std::move(values));
  return {p, false};
}

Value Importer::parameter(const ParameterName& name, const Shape& shape, NamedTensor values) {
  const Placed placed = place(name, shape, std::move(values), false);
  if (placed.is_turned) fail_unsupported_node("parameter {} is used as it is here and transposed elsewhere", name.text);
  return placed.value;
}

// A weight may have many uses; its other form is made once.
const NamedTensor& Importer::transposed_of(const Tensor& tensor, const NamedTensor& stored) {
  const auto it = transposed_.find(&tensor);
  return it != transposed_.end() ? it->second : transposed_.emplace(&tensor, transposed(stored)).first->second;
}

Importer::Placed Importer::linear_weight(Item& x, const Node& node, bool is_in_out) {
  if (x.kind != Item::Kind::weight || x.tensor->dims.size() != 2)
    fail_unsupported_node("its weight is not a matrix of the file");
  NamedTensor stored = named(x.tensor->name, *x.tensor, budget_);
  const bool is_ours = is_in_out == x.is_transposed;  // the file keeps it as [out, in]
  const NamedTensor ours = is_ours ? stored : transposed_of(*x.tensor, stored);
  const Shape shape = shape_of(ours.dims);
  if (status_of(x, node, 1) == TrainingFacts::Status::constant) {
    budget_.take(shape.elements(), node.label());
    const auto floats = std::vector<float>([&] {
      std::vector<float> v(ours.bytes.size() / 4);
      std::memcpy(v.data(), ours.bytes.data(), ours.bytes.size());
      return v;
    }());
    return {model_.constant(shape, floats, x.tensor->name), false};
  }
  const std::string& base = x.alias.empty() ? x.tensor->name : x.alias;
  const ParameterName name = parameter_name(x, node, "weight");
  if (is_ours || is_generated_name(base)) return place(name, shape, ours, false);
  return place(name, shape, std::move(stored), true);
}

Value Importer::weight(Item& x, const Node& node, const char* role, const Shape& shape) {
  const std::vector<std::int64_t> dims = dims_of(x);
  std::int64_t elements = 1;
  for (const std::int64_t d : dims) elements *= d;
  if (elements != shape.elements())
    fail_user("{}: {}: its {} is [{}], but must have the shape {}", file_.path, node.label(), role,
              fmt::join(dims, ", "), to_string(shape));
  if (x.kind == Item::Kind::weight && !x.is_transposed && is_parameter(x, node, 1))
    return parameter(parameter_name(x, node, role), shape, named(x.tensor->name, *x.tensor, budget_));
  const auto known = known_of(x);
  if (known == nullptr || (x.kind != Item::Kind::known && x.kind != Item::Kind::weight))
    fail_unsupported_node("its {} is computed by the model itself", role);
  budget_.take(elements, node.label());
  const std::vector<float> values = [&] {
    std::vector<float> v;
    for (std::size_t i = 0; i < static_cast<std::size_t>(elements); ++i)
      v.push_back(static_cast<float>(known->real_at(i)));
    return v;
  }();
  return model_.constant(shape, values, fmt::format("{}.{}", layer_name(node), role));
}

Value Importer::table(Item& x, const Node& node) { return weight(x, node, "weight", shape_of(dims_of(x))); }

Value Importer::state(Item& x, const Node& node, const char* role, const Shape& shape) {
  const auto known = known_of(x);
  if (known == nullptr || known->elements() != shape.elements())
    fail_unsupported_node("its {} is not stored in the file as {} numbers", role, shape.elements());
  std::string name = fmt::format("{}.{}", layer_name(node), role);
  if (x.kind == Item::Kind::weight) {
    const SignatureTensor* listed = listed_tensor(x, node, role);
    const std::string& base = listed != nullptr ? listed->name : x.alias.empty() ? x.tensor->name : x.alias;
    if (!is_generated_name(base) && base.ends_with(role) && !parameters_.contains(base)) name = base;
  }
  if (parameters_.contains(name)) {
    const std::string taken = name;
    while (parameters_.contains(name)) name = fmt::format("{}.{}", taken, ++copies_[taken]);
  }
  budget_.take(shape.elements(), node.label());
  std::vector<float> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(known->elements()); ++i)
    values.push_back(static_cast<float>(known->real_at(i)));
  const Value v = model_.state(shape, {}, name);
  parameters_[name] = {.value = v, .is_state = true};
  values_.push_back(owning_tensor(name, StoredType::f32, {shape.span().begin(), shape.span().end()},
                                  std::as_bytes(std::span(values))));
  return v;
}

// An embedding that was looked up during the export, at places known then, has become its result: one row again and
// again, where all places are the same. As one row it trains as the embedding would. So does a class token.
NamedTensor Importer::without_repeats(NamedTensor t) const {
  if (!is_lookup(t.name) || t.dims.size() < 2) return t;
  Constant c{.kind = Constant::Kind::real, .dims = t.dims};
  for (std::size_t i = 0; 4 * i < t.bytes.size(); ++i) c.reals.push_back(static_cast<double>(float_at(t, i)));
  for (std::size_t axis = 0; axis + 1 < c.dims.size(); ++axis) c = first_of_equal(std::move(c), axis);
  const std::vector<float> values(c.reals.begin(), c.reals.end());
  return owning_tensor(t.name, StoredType::f32, c.dims, std::as_bytes(std::span(values)));
}

Value Importer::value_of(Item& x, const Node& node, const char* role) {
  switch (x.kind) {
    case Item::Kind::runtime:
      return x.value;
    case Item::Kind::weight:
      if (is_parameter(x, node, 0)) {
        NamedTensor stored = without_repeats(named(x.tensor->name, *x.tensor, budget_));
        const Shape shape = shape_of(stored.dims);
        // A norm's scale [C] that the exporter reshaped to [C, 1, 1] is stored as PyTorch has it.
        const bool is_stretched = is_generated_name(x.tensor->name) && !is_lookup(x.tensor->name) && shape.rank > 1 &&
                                  shape[0] == shape.elements();
        if (is_stretched) stored.dims = {shape[0]};
        const Placed p = place(parameter_name(x, node, role), shape_of(stored.dims), stored, false);
        if (is_stretched) return model_.reshape(p.value, {shape.span().begin(), shape.span().end()});
        return x.is_transposed != p.is_turned ? model_.transpose(p.value, {1, 0}) : p.value;
      }
      return constant_value(*known_of(x), x.tensor->name);
    case Item::Kind::known:
      if (x.value.id == kNone) x.value = constant_value(*x.known, fmt::format("{}.constant", layer_name(node)));
      return x.value;
    default:
      fail_unsupported_node("an input that is only good for other ops");
  }
}

Value Importer::indices_of(Item& x, const Node& node, std::int64_t rows) {
  if (x.kind == Item::Kind::runtime) {
    if (model_.dtype(x.value) != DType::i32) fail_unsupported_node("indices that are no token ids");
    return x.value;
  }
  const auto known = known_of(x);
  if (known == nullptr) fail_unsupported_node("indices that are not known");
  if (known->kind == Constant::Kind::real) fail_unsupported_node("indices that are no whole numbers");
  const Constant c = without_equal_rows(*known);
  std::vector<std::int32_t> values;
  for (const std::int64_t i : c.integers) {
    if (i < -rows || i >= rows) fail_unsupported_node("index {} into {} rows", i, rows);
    values.push_back(static_cast<std::int32_t>(i < 0 ? i + rows : i));
  }
  return model_.constant(shape_of(c.dims), values, fmt::format("{}.indices", layer_name(node)));
}

// A file exported for one batch has constants with a row per sample. Equal rows are one row, which is broadcast.
Constant Importer::without_equal_rows(const Constant& given) const {
  Constant c = given;
  if (!changes_batch() || exported_batch_ < 2) return c;
  for (std::size_t axis = 0; axis < c.dims.size() && c.dims.size() > 1; ++axis)
    if (c.dims[axis] == exported_batch_) c = first_of_equal(std::move(c), axis);
  return c;
}

Value Importer::constant_value(const Constant& given, const std::string& name) {
  const Constant c = without_equal_rows(given);
  const Shape shape = shape_of(c.dims);
  std::vector<float> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(c.elements()); ++i) {
    // Masks are often the least float; adding to it must not leave the range.
    const double x = std::clamp(c.real_at(i), -1e30, 1e30);
    values.push_back(std::isnan(x) ? std::nanf("") : static_cast<float>(x));
  }
  return model_.constant(shape, values, name);
}

}  // namespace overtake::onnx
