#pragma once
// ONNX files made in memory, for tests:
//
//   write::model({.nodes = {write::node("Add", {"x", "one"}, {"y"})},
//                 .initializers = {write::tensor<float>("one", {}, {1})},
//                 .inputs = {write::value("x", {"batch", 3})},
//                 .outputs = {write::value("y", {"batch", 3})}})
//
// is the content of a file.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "models/onnx/proto.h"

namespace overtake::onnx::write {

// A protobuf message; what every function below makes. Add what no function has: node(...).text(6, "doc").
class Message {
 public:
  Message& number(std::uint32_t field, std::int64_t value) {
    varint(field << 3 | 0u);
    return varint(static_cast<std::uint64_t>(value));
  }
  Message& real(std::uint32_t field, float value) {
    varint(field << 3 | 5u);
    return raw(&value, sizeof(value));
  }
  Message& text(std::uint32_t field, std::string_view value) {
    varint(field << 3 | 2u);
    varint(value.size());
    return raw(value.data(), value.size());
  }
  Message& message(std::uint32_t field, const Message& value) { return text(field, value.bytes_); }
  Message& messages(std::uint32_t field, const std::vector<Message>& values) {
    for (const Message& value : values) message(field, value);
    return *this;
  }
  Message& texts(std::uint32_t field, const std::vector<std::string>& values) {
    for (const std::string& value : values) text(field, value);
    return *this;
  }
  Message& packed_numbers(std::uint32_t field, const std::vector<std::int64_t>& values) {
    Message numbers;
    for (const std::int64_t value : values) numbers.varint(static_cast<std::uint64_t>(value));
    return message(field, numbers);
  }
  template <class T>
  Message& packed_fixed(std::uint32_t field, const std::vector<T>& values) {
    return text(field, std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
  }
  Message& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  Message& raw(const void* data, std::size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

template <class T>
constexpr ElementType element_type_of() {
  if constexpr (std::is_same_v<T, float>) return ElementType::f32;
  if constexpr (std::is_same_v<T, double>) return ElementType::f64;
  if constexpr (std::is_same_v<T, std::int64_t>) return ElementType::i64;
  if constexpr (std::is_same_v<T, std::int32_t>) return ElementType::i32;
  if constexpr (std::is_same_v<T, std::int16_t>) return ElementType::i16;
  if constexpr (std::is_same_v<T, std::int8_t>) return ElementType::i8;
  if constexpr (std::is_same_v<T, std::uint64_t>) return ElementType::u64;
  if constexpr (std::is_same_v<T, std::uint32_t>) return ElementType::u32;
  if constexpr (std::is_same_v<T, std::uint16_t>) return ElementType::u16;
  if constexpr (std::is_same_v<T, std::uint8_t>) return ElementType::u8;
  return ElementType::undefined;
}

// A TensorProto without values.
inline Message bare_tensor(std::string_view name, ElementType type, const std::vector<std::int64_t>& dims) {
  return Message().packed_numbers(1, dims).number(2, static_cast<std::int64_t>(type)).text(8, name);
}

// A TensorProto with raw values, row-major; `type` for booleans (of bytes) and 16-bit floats (of their bits).
template <class T>
Message tensor(std::string_view name, const std::vector<std::int64_t>& dims, const std::vector<T>& values,
               ElementType type = element_type_of<T>()) {
  return bare_tensor(name, type, dims).packed_fixed(9, values);
}

// An AttributeProto, by what the value is.
inline Message attribute(std::string_view name, std::int64_t value) {
  return Message().text(1, name).number(3, value).number(20, 2);
}
inline Message attribute(std::string_view name, int value) { return attribute(name, std::int64_t{value}); }
inline Message attribute(std::string_view name, float value) {
  return Message().text(1, name).real(2, value).number(20, 1);
}
inline Message attribute(std::string_view name, const char* value) {
  return Message().text(1, name).text(4, value).number(20, 3);
}
inline Message attribute(std::string_view name, const Message& tensor_value) {
  return Message().text(1, name).message(5, tensor_value).number(20, 4);
}
inline Message attribute(std::string_view name, const std::vector<float>& values) {
  return Message().text(1, name).packed_fixed(7, values).number(20, 6);
}
inline Message attribute(std::string_view name, const std::vector<std::int64_t>& values) {
  return Message().text(1, name).packed_numbers(8, values).number(20, 7);
}
inline Message attribute(std::string_view name, const std::vector<std::string>& values) {
  return Message().text(1, name).texts(9, values).number(20, 8);
}
// Inside a function: stands for the attribute called `reference` of the call.
inline Message reference(std::string_view name, std::string_view reference) {
  return Message().text(1, name).text(21, reference);
}

inline Message node(std::string_view op, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs, const std::vector<Message>& attributes = {},
                    std::string_view name = "") {
  Message message;
  message.texts(1, inputs).texts(2, outputs);
  if (!name.empty()) message.text(3, name);
  return message.text(4, op).messages(5, attributes);
}

// A dimension: a number, or the name of one that is not known.
using Dim = std::variant<std::int64_t, std::string>;

// A ValueInfoProto of a tensor.
inline Message value(std::string_view name, const std::vector<Dim>& dims, ElementType type = ElementType::f32) {
  Message shape;
  for (const Dim& dim : dims) {
    const auto* number = std::get_if<std::int64_t>(&dim);
    shape.message(1, number != nullptr ? Message().number(1, *number) : Message().text(2, std::get<std::string>(dim)));
  }
  const Message tensor_type = Message().number(1, static_cast<std::int64_t>(type)).message(2, shape);
  return Message().text(1, name).message(2, Message().message(1, tensor_type));
}

inline Message opset_import(std::string_view domain, std::int64_t version) {
  return Message().text(1, domain).number(2, version);
}

struct FunctionParts {
  std::string name = {};
  std::string domain = "local";
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};
  std::vector<Message> nodes = {};
  std::vector<std::string> attributes = {};  // without a default
  std::vector<Message> defaults = {};
  std::int64_t opset = 18;
};

inline Message function(const FunctionParts& parts) {
  return Message()
      .text(1, parts.name)
      .texts(4, parts.inputs)
      .texts(5, parts.outputs)
      .texts(6, parts.attributes)
      .messages(7, parts.nodes)
      .message(9, opset_import("", parts.opset))
      .text(10, parts.domain)
      .messages(11, parts.defaults);
}

// A node that calls a function.
inline Message call(std::string_view function, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs, const std::vector<Message>& attributes = {},
                    std::string_view name = "", std::string_view domain = "local") {
  return node(function, inputs, outputs, attributes, name).text(7, domain);
}

// An entry of metadata: of a node as field 9, of a graph 16, of a model 14.
inline Message metadata(std::string_view key, std::string_view value) { return Message().text(1, key).text(2, value); }

// A node with what torch.export records of it: the operator's call and the modules around it.
inline Message recorded(Message node, std::string_view fx_node, std::string_view name_scopes) {
  return node.message(9, metadata("pkg.torch.onnx.fx_node", fx_node))
      .message(9, metadata("pkg.torch.onnx.name_scopes", name_scopes));
}

struct ModelParts {
  std::vector<Message> nodes = {};
  std::vector<Message> initializers = {};
  std::vector<Message> inputs = {};
  std::vector<Message> outputs = {};
  std::vector<Message> functions = {};
  std::vector<Message> opset_imports = {opset_import("", 18)};
  std::vector<Message> graph_metadata = {};
  std::vector<Message> values = {};  // of results of nodes
};

inline Message graph(const ModelParts& parts) {
  return Message()
      .messages(1, parts.nodes)
      .text(2, "graph")
      .messages(5, parts.initializers)
      .messages(11, parts.inputs)
      .messages(12, parts.outputs)
      .messages(13, parts.values)
      .messages(16, parts.graph_metadata);
}

// The content of a file.
inline std::string model(const ModelParts& parts) {
  return Message()
      .number(1, 8)
      .text(2, "test")
      .message(7, graph(parts))
      .messages(8, parts.opset_imports)
      .messages(25, parts.functions)
      .bytes();
}

// The content as read.
inline File parsed(std::string content, const std::filesystem::path& path = "model.onnx") {
  return parse_file(std::make_shared<const std::string>(std::move(content)), path);
}

}  // namespace overtake::onnx::write

namespace overtake::onnx {

template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

}  // namespace overtake::onnx
