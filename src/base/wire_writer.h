#pragma once
// Writes protobuf's wire format: the counterpart of wire.h.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace overtake {

// One message, field after field.
class WireWriter {
 public:
  WireWriter& integer(std::uint32_t field, std::int64_t value) {
    tag(field, 0);
    return varint(static_cast<std::uint64_t>(value));
  }
  WireWriter& text(std::uint32_t field, std::string_view value) {
    tag(field, 2);
    return delimited(value);
  }
  WireWriter& message(std::uint32_t field, const WireWriter& value) { return text(field, value.bytes_); }
  WireWriter& packed(std::uint32_t field, std::span<const std::uint32_t> values) {
    if (values.empty()) return *this;
    WireWriter numbers;
    for (const std::uint32_t value : values) numbers.varint(value);
    return message(field, numbers);
  }
  // A message behind its length, as streams of messages have them.
  WireWriter& append(const WireWriter& value) { return delimited(value.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void tag(std::uint32_t field, std::uint32_t type) { varint(std::uint64_t{field} << 3 | type); }
  WireWriter& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  WireWriter& delimited(std::string_view value) {
    varint(value.size());
    bytes_.append(value);
    return *this;
  }

  std::string bytes_;
};

}  // namespace overtake
