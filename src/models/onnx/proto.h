#pragma once
// What Overtake reads of an ONNX file, as plain structs. Weights stay views of the file's bytes.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/onnx/signature.h"
#include "models/onnx/training_facts.h"

namespace overtake::onnx {

// Numbered as in the format.
enum class ElementType : std::int32_t {
  undefined = 0,
  f32 = 1,
  u8 = 2,
  i8 = 3,
  u16 = 4,
  i16 = 5,
  i32 = 6,
  i64 = 7,
  text = 8,
  boolean = 9,
  f16 = 10,
  f64 = 11,
  u32 = 12,
  u64 = 13,
  bf16 = 16,
};
std::int64_t element_bytes(ElementType type);  // 0 for text and what is not known
std::string_view to_string(ElementType type);

// A tensor of the file: row-major, little-endian. Its size fits type and dims (checked while reading).
struct Tensor {
  std::string name = {};
  ElementType type = ElementType::undefined;
  std::vector<std::int64_t> dims = {};
  std::span<const std::byte> bytes = {};  // a view of `owner`; need not be aligned
  std::shared_ptr<const void> owner = nullptr;
};

struct Attribute {
  enum class Kind : std::uint8_t { real, integer, text, tensor, reals, integers, texts, graph, reference, other };
  std::string name = {};
  Kind kind = Kind::other;
  float real = 0;
  std::int64_t integer = 0;
  std::string text = {};  // of a reference: the attribute of the function it stands for
  Tensor tensor = {};
  std::vector<float> reals = {};
  std::vector<std::int64_t> integers = {};
  std::vector<std::string> texts = {};
};

struct Node {
  std::string name = {};
  std::string op = {};
  std::string domain = {};               // "" for ONNX's own ("ai.onnx" is stored as "")
  std::vector<std::string> inputs = {};  // "" for an optional one that is absent
  std::vector<std::string> outputs = {};
  std::vector<Attribute> attributes = {};
  // What PyTorch's exporters record of where a node comes from; empty where they do not.
  std::string scope = {};   // the module, "encoder.layer.0.query"
  std::string origin = {};  // the operator call, "... = call_function[target=...](args = (%x, %p_weight), ...)"

  // Null where there is none of that name.
  const Attribute* find(std::string_view attribute) const;
  // With what holds when the attribute is absent; a user error if it is of another kind.
  std::int64_t integer(std::string_view attribute, std::int64_t fallback) const;
  float real(std::string_view attribute, float fallback) const;
  std::string text(std::string_view attribute, std::string_view fallback) const;
  std::vector<std::int64_t> integers(std::string_view attribute, std::vector<std::int64_t> fallback) const;
  // "MatMul '/layer/MatMul'", for errors; a node without a name is called by its first output.
  std::string label() const;
};

struct Dimension {
  std::int64_t value = -1;  // -1: not known
  std::string symbol = {};  // the name of a symbolic one
};

struct ValueInfo {
  std::string name = {};
  ElementType type = ElementType::undefined;
  bool has_shape = false;
  std::vector<Dimension> dims = {};
};

struct File {
  std::string path = {};   // for errors
  std::int64_t bytes = 0;  // of the file and its external data
  std::int64_t ir_version = 0;
  std::int64_t opset = 0;  // of ONNX's own domain
  std::string producer = {};
  std::vector<Node> nodes = {};  // in an order in which each value is made before it is used; no functions are left
  std::vector<Tensor> initializers = {};
  std::vector<ValueInfo> inputs = {};  // without those that are initializers
  std::vector<ValueInfo> outputs = {};
  std::vector<ValueInfo> values = {};                 // what it says of others
  std::optional<Signature> signature = std::nullopt;  // where PyTorch's dynamo exporter made the file
  std::optional<TrainingFacts> facts = std::nullopt;  // where Overtake's export function did
};

inline constexpr std::int64_t kOldestOpset = 13, kNewestOpset = 20;

// A user error, naming the file, for what is no ONNX file, is damaged, has an opset out of the range above, lacks an
// external data file, or uses sequences, sparse tensors or recursive functions. Memory used is bounded by a small
// multiple of the file's size.
File read_file(const std::filesystem::path& path);
// From memory; external data is looked for in the folder of `path`.
File parse_file(std::shared_ptr<const std::string> content, const std::filesystem::path& path);

}  // namespace overtake::onnx
