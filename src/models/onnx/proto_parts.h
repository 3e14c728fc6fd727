#pragma once
// The parts of an ONNX file, from protobuf messages to the structs of proto.h.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire.h"
#include "models/onnx/external.h"
#include "models/onnx/proto.h"

namespace overtake::onnx {

// How errors of the wire format end.
inline constexpr std::string_view kWireAdvice = "it is damaged or no ONNX file: export or fetch it again";

// What all parts of one file share.
struct Source {
  std::string path = {};  // for errors
  std::shared_ptr<const std::string> content = nullptr;
  ExternalData external;
};

// undefined for what ElementType does not have.
ElementType to_element_type(std::int64_t number);

Tensor parse_tensor(WireReader message, Source& source);

Attribute parse_attribute(WireReader message, Source& source);

// A node as it stands in the file. The overload of a function, where there is one, follows the op after a colon.
Node parse_node(WireReader message, Source& source);

// A tensor with the shape as far as it is known; a user error for values of another kind.
ValueInfo parse_value_info(WireReader message);
// The same of a value in between, which may be of any kind.
ValueInfo parse_inner_value_info(WireReader message);

// One entry of a node's, a graph's or a model's metadata: views of the file.
struct MetadataEntry {
  std::string_view key = {};
  std::string_view value = {};
};
MetadataEntry parse_metadata(WireReader message);

struct OpsetImport {
  std::string domain = {};
  std::int64_t version = 0;
};
OpsetImport parse_opset_import(WireReader message);

// A user error for an opset of ONNX's own domain that is not read.
void check_opset(std::int64_t opset, const std::string& path);

// "ai.onnx" is another name of "".
std::string parse_domain(const WireReader& field);

// A function of the file: nodes that a node of its name stands for.
struct Function {
  std::string domain = {};
  std::string op = {};  // as Node::op of its calls, with the overload
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};
  std::vector<Attribute> defaults = {};  // of the attributes that have one
  std::vector<Node> nodes = {};
  std::int64_t opset = 0;  // of ONNX's own domain; 0 when it uses none
};
Function parse_function(WireReader message, Source& source);

// Replaces each call of one of `functions` by the nodes it stands for, with names of their own for the values inside.
// `taken` holds the names of all values of the graph. A user error for recursion and for calls that would multiply
// into much more than the file holds.
std::vector<Node> inline_functions(std::vector<Node> nodes, const std::vector<Function>& functions,
                                   const std::vector<std::string>& taken, std::int64_t file_bytes,
                                   const std::string& path);

}  // namespace overtake::onnx
