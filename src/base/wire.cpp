#include "base/wire.h"

#include <bit>
#include <cstring>

#include "base/error.h"

namespace overtake {

static_assert(std::endian::native == std::endian::little, "protobuf's fixed numbers are little-endian");

void WireReader::fail(std::string_view what) const {
  fail_user("{}: byte {}: {}; {}", *file_, start_ + field_position_, what, advice_);
}

std::uint64_t WireReader::read_varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (left() == 0) fail("a number is cut off");
    const auto byte = std::to_integer<std::uint64_t>(bytes_[position_++]);
    if (shift == 63 && byte > 1) break;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail("a number has more than 64 bits");
}

std::uint64_t WireReader::read_fixed(std::size_t width) {
  if (left() < width) fail("a number is cut off");
  payload_ = bytes_.subspan(position_, width);
  position_ += width;
  std::uint64_t value = 0;
  std::memcpy(&value, payload_.data(), width);
  return value;
}

bool WireReader::next() {
  field_position_ = position_;
  if (left() == 0) return false;
  const std::uint64_t tag = read_varint();
  constexpr std::uint64_t most_fields = (std::uint64_t{1} << 29) - 1;
  if (tag >> 3 == 0 || tag >> 3 > most_fields) fail("there is no field of that number");
  field_ = static_cast<std::uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      number_ = read_varint();
      break;
    case 1:
      number_ = read_fixed(8);
      break;
    case 2: {
      const std::uint64_t length = read_varint();
      if (length > left()) fail(fmt::format("a part of {} bytes where {} are left", length, left()));
      payload_ = bytes_.subspan(position_, length);
      position_ += length;
      break;
    }
    case 5:
      number_ = read_fixed(4);
      break;
    default:
      fail(fmt::format("a field of wire type {}", tag & 7));
  }
  type_ = static_cast<WireType>(tag & 7);
  return true;
}

WireReader WireReader::next_message() {
  field_position_ = position_;
  const std::uint64_t length = read_varint();
  if (length > left()) fail(fmt::format("a message of {} bytes where {} are left", length, left()));
  position_ += length;
  return WireReader(bytes_.subspan(position_ - length, length), *this, start_ + position_ - length);
}

void WireReader::expect(WireType type) const {
  if (type_ != type) {
    fail(fmt::format("field {} has wire type {} instead of {}", field_, static_cast<int>(type_),
                     static_cast<int>(type)));
  }
}

std::int64_t WireReader::integer() const {
  expect(WireType::varint);
  return static_cast<std::int64_t>(number_);
}

std::uint64_t WireReader::fixed() const {
  if (type_ != WireType::fixed32) expect(WireType::fixed64);
  return number_;
}

float WireReader::real() const {
  expect(WireType::fixed32);
  return std::bit_cast<float>(static_cast<std::uint32_t>(number_));
}

std::span<const std::byte> WireReader::bytes() const {
  expect(WireType::bytes);
  return payload_;
}

std::string_view WireReader::text() const {
  const std::span<const std::byte> view = bytes();
  return {reinterpret_cast<const char*>(view.data()), view.size()};
}

WireReader WireReader::message() const {
  if (depth_ == kMostDepth) fail("messages are nested too deeply");
  const std::span<const std::byte> view = bytes();
  return WireReader(view, *this, start_ + static_cast<std::size_t>(view.data() - bytes_.data()));
}

void WireReader::append_integers(std::vector<std::int64_t>& values) const {
  each_integer([&](std::int64_t value) { values.push_back(value); });
}

void WireReader::append_reals(std::vector<float>& values) const {
  const std::span<const std::byte> bytes = fixed_bytes(sizeof(float));
  const std::size_t before = values.size();
  values.resize(before + bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(values.data() + before, bytes.data(), bytes.size());
}

std::span<const std::byte> WireReader::fixed_bytes(std::size_t width) const {
  if (type_ != WireType::bytes) expect(width == 4 ? WireType::fixed32 : WireType::fixed64);
  if (payload_.size() % width != 0) fail("packed numbers are cut off");
  return payload_;
}

std::size_t WireReader::count(std::uint32_t field) const {
  std::size_t found = 0;
  for (WireReader rest = *this; rest.next();) found += rest.field_ == field ? 1 : 0;
  return found;
}

}  // namespace overtake
