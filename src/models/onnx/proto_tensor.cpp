// TensorProto: values as raw bytes, as protobuf numbers, or in another file.

#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "models/onnx/dims.h"
#include "models/onnx/proto_parts.h"

namespace overtake::onnx {
namespace {

// Field numbers of TensorProto.
enum : std::uint32_t {
  kDims = 1,
  kDataType = 2,
  kFloatData = 4,
  kInt32Data = 5,
  kInt64Data = 7,
  kName = 8,
  kRawData = 9,
  kDoubleData = 10,
  kUint64Data = 11,
  kExternalData = 13,
  kDataLocation = 14,
};

// The message before its values are looked at.
struct Parts {
  Tensor tensor = {};
  std::int64_t type_number = 0;
  std::optional<std::span<const std::byte>> raw = {};
  bool is_external = false;
  std::string location = {}, offset = {}, length = {};  // of external data, as text
};

void parse_external_entry(WireReader message, Parts& parts) {
  std::string_view key, value;
  while (message.next()) {
    if (message.field() == 1) key = message.text();
    if (message.field() == 2) value = message.text();
  }
  if (key == "location") parts.location = value;
  if (key == "offset") parts.offset = value;
  if (key == "length") parts.length = value;
}

Parts parse_parts(WireReader message) {
  Parts parts;
  while (message.next()) {
    switch (message.field()) {
      case kDims:
        message.append_integers(parts.tensor.dims);
        break;
      case kDataType:
        parts.type_number = message.integer();
        break;
      case kName:
        parts.tensor.name = message.name();
        break;
      case kRawData:
        parts.raw = message.bytes();
        break;
      case kExternalData:
        parse_external_entry(message.message(), parts);
        break;
      case kDataLocation:
        parts.is_external = message.integer() == 1;
        break;
      default:
        break;
    }
  }
  return parts;
}

// Which field holds the numbers of a type, where they are not raw.
std::uint32_t field_of(ElementType type) {
  switch (type) {
    case ElementType::f32:
      return kFloatData;
    case ElementType::f64:
      return kDoubleData;
    case ElementType::i64:
      return kInt64Data;
    case ElementType::u32:
    case ElementType::u64:
      return kUint64Data;
    default:
      return kInt32Data;
  }
}

// The bytes of all fields that hold the numbers, packed or not; for types that are stored as they are in memory.
void take_fixed_numbers(WireReader message, std::int64_t size, Tensor& tensor, const Source& source) {
  const std::uint32_t field = field_of(tensor.type);
  const bool is_single = message.count(field) == 1;
  const auto joined = std::make_shared<std::vector<std::byte>>();
  while (message.next()) {
    if (message.field() != field) continue;
    const std::span<const std::byte> bytes = message.fixed_bytes(static_cast<std::size_t>(element_bytes(tensor.type)));
    if (is_single) {
      tensor.bytes = bytes;
      tensor.owner = source.content;
      return;
    }
    if (std::ssize(*joined) + std::ssize(bytes) > size) message.fail("a tensor has more numbers than its shape says");
    joined->insert(joined->end(), bytes.begin(), bytes.end());
  }
  tensor.bytes = *joined;
  tensor.owner = joined;
}

// Whether a number that the file keeps as a varint is one of the type.
bool fits(std::int64_t value, ElementType type) {
  switch (type) {
    case ElementType::u8:
      return std::in_range<std::uint8_t>(value);
    case ElementType::i8:
      return std::in_range<std::int8_t>(value);
    case ElementType::i16:
      return std::in_range<std::int16_t>(value);
    case ElementType::i32:
      return std::in_range<std::int32_t>(value);
    case ElementType::u32:
      return std::in_range<std::uint32_t>(value);
    case ElementType::boolean:
      return value == 0 || value == 1;
    case ElementType::u16:
    case ElementType::f16:
    case ElementType::bf16:  // of the two: their bits
      return std::in_range<std::uint16_t>(value);
    default:
      return true;
  }
}

// Numbers of one byte or more each become `size` bytes: `size` / width numbers.
void take_varints(WireReader message, std::int64_t size, Tensor& tensor) {
  const std::uint32_t field = field_of(tensor.type);
  const auto width = static_cast<std::size_t>(element_bytes(tensor.type));
  const auto joined = std::make_shared<std::vector<std::byte>>();
  while (message.next()) {
    if (message.field() != field) continue;
    message.each_integer([&](std::int64_t value) {
      if (std::ssize(*joined) == size) message.fail("a tensor has more numbers than its shape says");
      if (!fits(value, tensor.type)) {
        message.fail(fmt::format("a tensor of type {} has the number {}", to_string(tensor.type), value));
      }
      const std::span<const std::byte> bytes = std::as_bytes(std::span(&value, 1)).first(width);
      joined->insert(joined->end(), bytes.begin(), bytes.end());
    });
  }
  tensor.bytes = *joined;
  tensor.owner = joined;
}

std::int64_t parse_decimal(const std::string& text, std::string_view what, const std::string& where) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    fail_user("{}: the {} of its data is '{}', not a number; export the model again", where, what,
              printable_name(text));
  }
  return value;
}

void take_external(const Parts& parts, std::int64_t size, Tensor& tensor, Source& source, const std::string& where) {
  const std::int64_t offset = parts.offset.empty() ? 0 : parse_decimal(parts.offset, "offset", where);
  const std::int64_t length = parts.length.empty() ? size : parse_decimal(parts.length, "length", where);
  ExternalData::Part part = source.external.read(parts.location, offset, length, where);
  tensor.bytes = part.bytes;
  tensor.owner = std::move(part.owner);
}

}  // namespace

Tensor parse_tensor(WireReader message, Source& source) {
  Parts parts = parse_parts(message);
  Tensor& tensor = parts.tensor;
  const std::string where = fmt::format("{}: tensor '{}'", source.path, printable_name(tensor.name));
  tensor.type = to_element_type(parts.type_number);
  if (tensor.type == ElementType::undefined) {
    fail_user("{}: element type {} of ONNX is not read; convert the model to float32, float16 or bfloat16", where,
              parts.type_number);
  }
  const std::optional<std::int64_t> elements = count_elements(tensor.dims);
  if (!elements) {
    fail_user("{}: its shape is no shape of a tensor: {}; export the model again", where, shape_text(tensor.dims));
  }
  if (tensor.type == ElementType::text) return std::move(tensor);

  const std::int64_t size = *elements * element_bytes(tensor.type);
  if (parts.is_external) {
    take_external(parts, size, tensor, source, where);
  } else if (parts.raw) {
    tensor.bytes = *parts.raw;
    tensor.owner = source.content;
  } else if (tensor.type == ElementType::f32 || tensor.type == ElementType::f64) {
    take_fixed_numbers(message, size, tensor, source);
  } else {
    take_varints(message, size, tensor);
  }
  if (std::ssize(tensor.bytes) != size) {
    fail_user("{}: {} bytes where type {} and shape {} need {}; the file is damaged: export or fetch it again", where,
              tensor.bytes.size(), to_string(tensor.type), shape_text(tensor.dims), size);
  }
  return std::move(tensor);
}

}  // namespace overtake::onnx
