#include "sim/chakra/attribute.h"

#include <bit>
#include <cmath>

#include "sim/chakra/format.h"

namespace overtake::chakra {
namespace {

std::int64_t from_zigzag(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  return static_cast<std::int64_t>((bits >> 1) ^ (~(bits & 1) + 1));
}

std::optional<std::int64_t> whole(double value) {
  if (!(std::abs(value) < 0x1p62)) return {};
  return static_cast<std::int64_t>(value);
}

}  // namespace

Attribute read_attribute(WireReader message) {
  namespace f = attribute_field;
  Attribute out;
  while (message.next()) {
    switch (message.field()) {
      case f::name:
        out.name = message.text();
        break;
      case f::int32:
      case f::int64:
      case f::uint32:
      case f::uint64:
      case f::boolean:
        out.integer = message.integer();
        break;
      case f::sint32:
      case f::sint64:
        out.integer = from_zigzag(message.integer());
        break;
      case f::fixed32:
      case f::fixed64:
      case f::sfixed64:
        out.integer = static_cast<std::int64_t>(message.fixed());
        break;
      case f::sfixed32:
        out.integer = static_cast<std::int32_t>(message.fixed());
        break;
      case f::real32:
        out.integer = whole(message.real());
        break;
      case f::real64:
        out.integer = whole(std::bit_cast<double>(message.fixed()));
        break;
      case f::boolean_list:
        out.integer = 1;
        for (WireReader list = message.message(); list.next();)
          list.each_integer([&](std::int64_t value) { out.integer = *out.integer & (value != 0 ? 1 : 0); });
        break;
      case f::text:
        out.text = message.text();
        break;
      default:
        break;
    }
  }
  return out;
}

}  // namespace overtake::chakra
