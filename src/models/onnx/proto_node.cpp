// NodeProto, AttributeProto, ValueInfoProto and what belongs to them.

#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "models/onnx/proto_parts.h"

namespace overtake::onnx {
namespace {

using AttributeKind = Attribute::Kind;

// AttributeProto.type as a kind; files of the first ONNX versions leave it out, which is 0.
AttributeKind kind_of(std::int64_t type) {
  constexpr AttributeKind kinds[] = {AttributeKind::other, AttributeKind::real,     AttributeKind::integer,
                                     AttributeKind::text,  AttributeKind::tensor,   AttributeKind::graph,
                                     AttributeKind::reals, AttributeKind::integers, AttributeKind::texts};
  return type >= 0 && type < std::ssize(kinds) ? kinds[type] : AttributeKind::other;
}

// The value's field; the kind it is of.
AttributeKind parse_attribute_value(const WireReader& field, Attribute& attribute, Source& source) {
  switch (field.field()) {
    case 2:
      attribute.real = field.real();
      return AttributeKind::real;
    case 3:
      attribute.integer = field.integer();
      return AttributeKind::integer;
    case 4:
      attribute.text = field.name();
      return AttributeKind::text;
    case 5:
      attribute.tensor = parse_tensor(field.message(), source);
      return AttributeKind::tensor;
    case 6:
      return AttributeKind::graph;
    case 7:
      field.append_reals(attribute.reals);
      return AttributeKind::reals;
    case 8:
      field.append_integers(attribute.integers);
      return AttributeKind::integers;
    case 9:
      attribute.texts.push_back(field.name());
      return AttributeKind::texts;
    default:
      return AttributeKind::other;
  }
}

// TensorShapeProto.Dimension
Dimension parse_dimension(WireReader message) {
  Dimension dimension;
  while (message.next()) {
    if (message.field() == 1) dimension.value = message.integer();
    if (message.field() == 2) dimension.symbol = message.name();
  }
  if (dimension.value < 0) dimension.value = -1;
  return dimension;
}

// TypeProto.Tensor
void parse_tensor_type(WireReader message, ValueInfo& value) {
  while (message.next()) {
    if (message.field() == 1) value.type = to_element_type(message.integer());
    if (message.field() == 2) {
      value.has_shape = true;
      value.dims.clear();
      for (WireReader shape = message.message(); shape.next();) {
        if (shape.field() == 1) value.dims.push_back(parse_dimension(shape.message()));
      }
    }
  }
}

// What the fields of TypeProto other than tensor_type stand for; "" for fields that name no type.
std::string_view foreign_type(std::uint32_t field) {
  switch (field) {
    case 4:
      return "sequence";
    case 5:
      return "map";
    case 7:
      return "opaque";
    case 8:
      return "sparse tensor";
    case 9:
      return "optional";
    default:
      return "";
  }
}

// The module in a list of nested ones as torch.export writes it, "['', 'encoder', 'encoder.fc', 'linear']": the last
// but one, for the last is the operator.
std::string module_of_scopes(std::string_view list) {
  std::vector<std::string_view> quoted;
  for (std::size_t at = 0; (at = list.find('\'', at)) != std::string_view::npos;) {
    const std::size_t end = list.find('\'', at + 1);
    if (end == std::string_view::npos) break;
    quoted.push_back(list.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return quoted.size() < 2 ? "" : std::string(quoted[quoted.size() - 2]);
}

// The module in a node's name as the older exporter writes it: "/encoder/layer.0/MatMul" -> "encoder.layer.0".
std::string module_of_name(std::string_view name) {
  const std::size_t last = name.rfind('/');
  if (!name.starts_with('/') || last == 0) return "";
  std::string module(name.substr(1, last - 1));
  for (char& c : module)
    if (c == '/') c = '.';
  return module;
}

void take_provenance(const MetadataEntry& entry, Node& node) {
  const auto& [key, value] = entry;
  if (key == "pkg.torch.onnx.name_scopes") node.scope = module_of_scopes(value);
  if (key == "pkg.torch.onnx.fx_node") node.origin = value;
}

}  // namespace

Attribute parse_attribute(WireReader message, Source& source) {
  Attribute attribute;
  std::int64_t type = 0;
  std::string reference;
  bool has_tensor = false;
  for (WireReader& field = message; field.next();) {
    switch (field.field()) {
      case 1:
        attribute.name = field.name();
        break;
      case 20:
        type = field.integer();
        break;
      case 21:
        reference = field.name();
        break;
      default: {
        const AttributeKind found = parse_attribute_value(field, attribute, source);
        has_tensor = has_tensor || found == AttributeKind::tensor;
        if (found != AttributeKind::other) attribute.kind = found;
      }
    }
  }
  if (attribute.name.empty()) message.fail("an attribute has no name");
  if (type != 0) attribute.kind = kind_of(type);
  if (!reference.empty()) {
    attribute.kind = AttributeKind::reference;
    attribute.text = std::move(reference);
  }
  if (attribute.kind == AttributeKind::tensor && !has_tensor) {
    message.fail(fmt::format("attribute '{}' has no value", printable_name(attribute.name)));
  }
  return attribute;
}

std::string parse_domain(const WireReader& field) {
  const std::string_view domain = field.text();
  return domain == "ai.onnx" ? std::string() : std::string(domain);
}

Node parse_node(WireReader message, Source& source) {
  Node node;
  node.attributes.reserve(message.count(5));
  std::string overload;
  for (WireReader& field = message; field.next();) {
    switch (field.field()) {
      case 1:
        node.inputs.push_back(field.name());
        break;
      case 2:
        node.outputs.push_back(field.name());
        break;
      case 3:
        node.name = field.name();
        break;
      case 4:
        node.op = field.name();
        break;
      case 5:
        node.attributes.push_back(parse_attribute(field.message(), source));
        break;
      case 7:
        node.domain = parse_domain(field);
        break;
      case 8:
        overload = field.name();
        break;
      case 9:
        take_provenance(parse_metadata(field.message()), node);
        break;
      default:
        break;
    }
  }
  if (node.op.empty()) message.fail("a node has no op");
  if (!overload.empty()) node.op += ":" + overload;
  if (node.origin.empty()) node.scope = module_of_name(node.name);
  return node;
}

namespace {

// `foreign` becomes its kind where it is no tensor.
ValueInfo parse_any_value_info(WireReader& message, std::string_view& foreign) {
  ValueInfo value;
  for (WireReader& field = message; field.next();) {
    if (field.field() == 1) value.name = field.name();
    if (field.field() != 2) continue;
    for (WireReader type = field.message(); type.next();) {
      if (type.field() == 1) {
        parse_tensor_type(type.message(), value);
      } else if (!foreign_type(type.field()).empty()) {
        foreign = foreign_type(type.field());
      }
    }
  }
  return value;
}

}  // namespace

ValueInfo parse_inner_value_info(WireReader message) {
  std::string_view foreign;
  return parse_any_value_info(message, foreign);
}

ValueInfo parse_value_info(WireReader message) {
  std::string_view foreign;
  ValueInfo value = parse_any_value_info(message, foreign);
  if (value.name.empty()) message.fail("an input or output has no name");
  if (!foreign.empty()) {
    fail_user(
        "{}: value '{}' is no tensor but of kind {}, which Overtake does not read; export a model of plain tensors",
        message.file(), printable_name(value.name), foreign);
  }
  return value;
}

MetadataEntry parse_metadata(WireReader message) {
  MetadataEntry entry;
  while (message.next()) {
    if (message.field() == 1) entry.key = message.text();
    if (message.field() == 2) entry.value = message.text();
  }
  return entry;
}

OpsetImport parse_opset_import(WireReader message) {
  OpsetImport import;
  while (message.next()) {
    if (message.field() == 1) import.domain = parse_domain(message);
    if (message.field() == 2) import.version = message.integer();
  }
  return import;
}

Function parse_function(WireReader message, Source& source) {
  Function function;
  function.nodes.reserve(message.count(7));
  std::string overload;
  for (WireReader& field = message; field.next();) {
    switch (field.field()) {
      case 1:
        function.op = field.name();
        break;
      case 4:
        function.inputs.push_back(field.name());
        break;
      case 5:
        function.outputs.push_back(field.name());
        break;
      case 7:
        function.nodes.push_back(parse_node(field.message(), source));
        break;
      case 9: {
        const OpsetImport import = parse_opset_import(field.message());
        if (import.domain.empty()) function.opset = import.version;
        break;
      }
      case 10:
        function.domain = parse_domain(field);
        break;
      case 11:
        function.defaults.push_back(parse_attribute(field.message(), source));
        break;
      case 13:
        overload = field.name();
        break;
      default:
        break;
    }
  }
  if (function.op.empty()) message.fail("a function has no name");
  if (!overload.empty()) function.op += ":" + overload;
  return function;
}

}  // namespace overtake::onnx
