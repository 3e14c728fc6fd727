#include "models/onnx/proto.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "models/onnx/proto_parts.h"

namespace overtake::onnx {
namespace {

struct TypeRow {
  ElementType type;
  std::string_view name;
  std::int64_t bytes;
};

constexpr TypeRow kTypes[] = {
    {ElementType::f32, "float32", 4}, {ElementType::u8, "uint8", 1},     {ElementType::i8, "int8", 1},
    {ElementType::u16, "uint16", 2},  {ElementType::i16, "int16", 2},    {ElementType::i32, "int32", 4},
    {ElementType::i64, "int64", 8},   {ElementType::text, "string", 0},  {ElementType::boolean, "bool", 1},
    {ElementType::f16, "float16", 2}, {ElementType::f64, "float64", 8},  {ElementType::u32, "uint32", 4},
    {ElementType::u64, "uint64", 8},  {ElementType::bf16, "bfloat16", 2}};

const TypeRow* row_of(ElementType type) {
  const auto found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& row) { return row.type == type; });
  return found == std::end(kTypes) ? nullptr : &*found;
}

// The attribute where it is there and of the kind; a user error where it is of another.
const Attribute* find_kind(const Node& node, std::string_view name, Attribute::Kind kind, std::string_view what) {
  const Attribute* attribute = node.find(name);
  if (attribute != nullptr && attribute->kind != kind) {
    fail_user("node {}: attribute {} is not {}; export the model again", node.label(), name, what);
  }
  return attribute;
}

// PyTorch writes its list into the graph's metadata (its first versions with a dynamo exporter, into the model's), and
// Overtake's export function what it adds into the model's.
void take_metadata(const MetadataEntry& entry, File& file) {
  if (entry.key == Signature::kKey) file.signature.emplace(entry.value, file.path);
  if (entry.key == TrainingFacts::kKey) file.facts.emplace(entry.value, file.path);
}

// GraphProto
void parse_graph(WireReader message, Source& source, File& file) {
  file.nodes.reserve(message.count(1));
  file.initializers.reserve(message.count(5));
  for (WireReader& field = message; field.next();) {
    switch (field.field()) {
      case 1:
        file.nodes.push_back(parse_node(field.message(), source));
        break;
      case 5:
        file.initializers.push_back(parse_tensor(field.message(), source));
        if (file.initializers.back().name.empty()) field.fail("an initializer has no name");
        break;
      case 11:
        file.inputs.push_back(parse_value_info(field.message()));
        break;
      case 12:
        file.outputs.push_back(parse_value_info(field.message()));
        break;
      case 13:
        file.values.push_back(parse_inner_value_info(field.message()));
        break;
      case 15:
        fail_user("{}: it has sparse initializers, which Overtake does not read; export dense weights", source.path);
      case 16:
        take_metadata(parse_metadata(field.message()), file);
        break;
      default:
        break;
    }
  }
}

// ModelProto, functions not inlined yet.
void parse_model(WireReader message, Source& source, File& file, std::vector<Function>& functions) {
  functions.reserve(message.count(25));
  bool has_graph = false;
  for (WireReader& field = message; field.next();) {
    switch (field.field()) {
      case 1:
        file.ir_version = field.integer();
        break;
      case 2:
        file.producer = field.name();
        break;
      case 7:
        if (std::exchange(has_graph, true)) field.fail("there is a second graph");
        parse_graph(field.message(), source, file);
        break;
      case 8: {
        const OpsetImport import = parse_opset_import(field.message());
        if (import.domain.empty()) file.opset = import.version;
        break;
      }
      case 14:
        take_metadata(parse_metadata(field.message()), file);
        break;
      case 25:
        functions.push_back(parse_function(field.message(), source));
        break;
      default:
        break;
    }
  }
  if (!has_graph) message.fail("there is no graph");
}

// Old files list initializers among the inputs.
void drop_initialized_inputs(File& file) {
  std::unordered_set<std::string_view> initialized;
  for (const Tensor& tensor : file.initializers) initialized.insert(tensor.name);
  std::erase_if(file.inputs, [&](const ValueInfo& input) { return initialized.contains(input.name); });
}

void check_references(const File& file) {
  for (const Node& node : file.nodes) {
    for (const Attribute& attribute : node.attributes) {
      if (attribute.kind == Attribute::Kind::reference) {
        fail_user(
            "{}: node {}: attribute {} stands for one of a function, but the node is in none; export the model "
            "again",
            file.path, node.label(), printable_name(attribute.name));
      }
    }
  }
}

// Names go into checkpoints, plans and traces, which are UTF-8, as ONNX is to be.
void check_names(const File& file) {
  const auto check = [&](const std::string& name, std::string_view what) {
    if (!is_utf8(name))
      fail_user("{}: the name of {} is not UTF-8: '{}'; rename it, or export the model again",
                printable_name(file.path), what, printable_name(name));
  };
  check(file.path, "the file");
  for (const ValueInfo& input : file.inputs) check(input.name, "an input");
  for (const Tensor& tensor : file.initializers) check(tensor.name, "a tensor");
  for (const Node& node : file.nodes) {
    check(node.name, "a node");
    check(node.scope, "a node's module");
    for (const std::string& output : node.outputs) check(output, "a value");
  }
}

// Every value is made once, and before it is read.
void check_values(const File& file) {
  std::unordered_set<std::string_view> made;
  const auto make = [&](const std::string& name) {
    if (!made.insert(name).second) {
      fail_user("{}: value '{}' is made twice; export the model again", file.path, printable_name(name));
    }
  };
  for (const ValueInfo& input : file.inputs) make(input.name);
  for (const Tensor& tensor : file.initializers) make(tensor.name);
  for (const Node& node : file.nodes) {
    for (const std::string& input : node.inputs) {
      if (input.empty() || made.contains(input)) continue;
      fail_user(
          "{}: node {} reads value '{}', which no input, initializer or earlier node makes; export the model again",
          file.path, node.label(), printable_name(input));
    }
    for (const std::string& output : node.outputs) {
      if (!output.empty()) make(output);
    }
  }
  for (const ValueInfo& output : file.outputs) {
    if (!made.contains(output.name)) {
      fail_user("{}: nothing makes its output '{}'; export the model again", file.path, printable_name(output.name));
    }
  }
}

std::vector<std::string> names_before_nodes(const File& file) {
  std::vector<std::string> names;
  for (const ValueInfo& input : file.inputs) names.push_back(input.name);
  for (const Tensor& tensor : file.initializers) names.push_back(tensor.name);
  return names;
}

}  // namespace

std::int64_t element_bytes(ElementType type) {
  const TypeRow* row = row_of(type);
  return row == nullptr ? 0 : row->bytes;
}

std::string_view to_string(ElementType type) {
  const TypeRow* row = row_of(type);
  return row == nullptr ? "unknown" : row->name;
}

ElementType to_element_type(std::int64_t number) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const TypeRow& row) { return static_cast<std::int64_t>(row.type) == number; });
  return found == std::end(kTypes) ? ElementType::undefined : found->type;
}

const Attribute* Node::find(std::string_view attribute) const {
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [&](const Attribute& candidate) { return candidate.name == attribute; });
  return found == attributes.end() ? nullptr : &*found;
}

std::int64_t Node::integer(std::string_view attribute, std::int64_t fallback) const {
  const Attribute* found = find_kind(*this, attribute, Attribute::Kind::integer, "a whole number");
  return found == nullptr ? fallback : found->integer;
}

float Node::real(std::string_view attribute, float fallback) const {
  const Attribute* found = find_kind(*this, attribute, Attribute::Kind::real, "a number");
  return found == nullptr ? fallback : found->real;
}

std::string Node::text(std::string_view attribute, std::string_view fallback) const {
  const Attribute* found = find_kind(*this, attribute, Attribute::Kind::text, "a text");
  return found == nullptr ? std::string(fallback) : found->text;
}

std::vector<std::int64_t> Node::integers(std::string_view attribute, std::vector<std::int64_t> fallback) const {
  const Attribute* found = find_kind(*this, attribute, Attribute::Kind::integers, "a list of whole numbers");
  return found == nullptr ? fallback : found->integers;
}

std::string Node::label() const {
  const auto is_named = [](const std::string& output) { return !output.empty(); };
  const auto output = std::find_if(outputs.begin(), outputs.end(), is_named);
  if (name.empty() && output == outputs.end()) return printable_name(op);
  return fmt::format("{} '{}'", printable_name(op), printable_name(name.empty() ? *output : name));
}

void check_opset(std::int64_t opset, const std::string& path) {
  if (opset >= kOldestOpset && opset <= kNewestOpset) return;
  fail_user(
      "{}: it uses opset {} of ONNX; Overtake reads {} to {}: export it again with "
      "torch.onnx.export(..., opset_version=18)",
      path, opset, kOldestOpset, kNewestOpset);
}

File parse_file(std::shared_ptr<const std::string> content, const std::filesystem::path& path) {
  Source source{.path = path.string(), .content = std::move(content), .external = ExternalData(path)};
  File file;
  file.path = source.path;
  std::vector<Function> functions;
  parse_model(WireReader(std::as_bytes(std::span(*source.content)), source.path, kWireAdvice), source, file, functions);
  check_opset(file.opset, file.path);
  file.bytes = std::ssize(*source.content) + source.external.total_bytes();
  drop_initialized_inputs(file);
  check_references(file);
  file.nodes = inline_functions(std::move(file.nodes), functions, names_before_nodes(file), file.bytes, file.path);
  check_names(file);
  check_values(file);
  return file;
}

File read_file(const std::filesystem::path& path) {
  return parse_file(std::make_shared<const std::string>(overtake::read_file(path)), path);
}

}  // namespace overtake::onnx
