#pragma once
// A bounded reader of protobuf's wire format: views of the bytes, no copies, every length checked.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace overtake {

// Numbered as in the format; groups (3 and 4) are obsolete and refused.
enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

// The fields of one message, in order. Reading a value as another wire type than the file's, like any damage, is a user
// error that names the file and the place.
class WireReader {
 public:
  // `bytes` is the content of a whole file called `file`; all three outlive the reader and those made from it. Errors
  // end with `advice`: what the file may be instead, and what to do.
  WireReader(std::span<const std::byte> bytes, const std::string& file, std::string_view advice)
      : file_(&file), advice_(advice), bytes_(bytes) {}

  // Moves to the next field and checks all of it; false at the end.
  bool next();
  // Of a stream of messages, each behind its length: the next, whole; `is_empty` at the end.
  WireReader next_message();
  bool is_empty() const { return left() == 0; }

  std::uint32_t field() const { return field_; }
  std::int64_t integer() const;
  std::uint64_t fixed() const;  // the bits of a number of 4 or 8 bytes
  float real() const;
  std::span<const std::byte> bytes() const;
  std::string_view text() const;
  std::string name() const { return std::string(text()); }
  WireReader message() const;
  WireType type() const { return type_; }

  // Repeated numbers come one by one or packed into one field: these take the number or numbers of this field.
  template <class Take>
  void each_integer(const Take& take) const {
    if (type_ != WireType::bytes) return take(integer());
    for (WireReader packed = message(); packed.left() > 0;) take(static_cast<std::int64_t>(packed.read_varint()));
  }
  void append_integers(std::vector<std::int64_t>& values) const;
  void append_reals(std::vector<float>& values) const;
  // As they are in the file, `width` bytes each: 4 or 8.
  std::span<const std::byte> fixed_bytes(std::size_t width) const;

  // How often `field` comes from here on.
  std::size_t count(std::uint32_t field) const;

  const std::string& file() const { return *file_; }
  // The error for what is wrong at this field, naming the byte.
  [[noreturn]] void fail(std::string_view what) const;

 private:
  static constexpr int kMostDepth = 16;  // messages inside messages; ONNX without subgraphs needs 6

  WireReader(std::span<const std::byte> bytes, const WireReader& outer, std::size_t start)
      : file_(outer.file_), advice_(outer.advice_), bytes_(bytes), start_(start), depth_(outer.depth_ + 1) {}

  void expect(WireType type) const;
  std::uint64_t read_varint();
  std::uint64_t read_fixed(std::size_t width);
  std::size_t left() const { return bytes_.size() - position_; }

  const std::string* file_;
  std::string_view advice_;
  std::span<const std::byte> bytes_;
  std::size_t start_ = 0;  // of bytes_ in the file
  std::size_t position_ = 0;
  int depth_ = 0;

  // The field read last.
  std::size_t field_position_ = 0;
  std::uint32_t field_ = 0;
  WireType type_ = WireType::varint;
  std::uint64_t number_ = 0;                 // of a varint or a fixed one: its bits
  std::span<const std::byte> payload_ = {};  // the bytes of the value
};

}  // namespace overtake
