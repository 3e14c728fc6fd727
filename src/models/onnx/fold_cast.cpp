// Numbers of one type as numbers of another.

#include <algorithm>
#include <cmath>

#include "models/onnx/fold.h"
#include "models/onnx/proto_parts.h"

namespace overtake::onnx {
namespace {

using Kind = Constant::Kind;

// To the nearest number, ties to even, of a format with `digits` binary digits and normal numbers from 2^lowest to
// below 2^(highest + 1).
double round_to(double value, int digits, int lowest, int highest) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(value), lowest) - digits + 1);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::abs(rounded) >= std::ldexp(1.0, highest + 1) ? std::copysign(INFINITY, value) : rounded;
}

double round_to(double value, ElementType type) {
  switch (type) {
    case ElementType::f16:
      return round_to(value, 11, -14, 15);
    case ElementType::bf16:
      return round_to(value, 8, -126, 127);
    case ElementType::f32:
      return to_single(value);
    default:
      return value;
  }
}

// Keeps the low bits, as C does.
std::int64_t narrow_to(std::int64_t value, ElementType type, const FoldCall& call) {
  switch (type) {
    case ElementType::u8:
      return static_cast<std::uint8_t>(value);
    case ElementType::i8:
      return static_cast<std::int8_t>(value);
    case ElementType::u16:
      return static_cast<std::uint16_t>(value);
    case ElementType::i16:
      return static_cast<std::int16_t>(value);
    case ElementType::u32:
      return static_cast<std::uint32_t>(value);
    case ElementType::i32:
      return static_cast<std::int32_t>(value);
    case ElementType::u64:
      if (value < 0) call.fail("{} does not fit {}", value, to_string(type));
      return value;
    default:
      return value;
  }
}

Constant cast(const FoldCall& call, const Constant& input, Kind kind, ElementType type) {
  Constant result = call.make(kind, input.dims);
  const auto elements = static_cast<std::size_t>(input.elements());
  for (std::size_t i = 0; i < elements; ++i) {
    if (kind == Kind::real) {
      result.reals[i] = round_to(input.real_at(i), type);
    } else if (kind == Kind::boolean) {
      result.integers[i] = input.real_at(i) != 0 ? 1 : 0;
    } else {
      const std::int64_t value = input.kind == Kind::real ? to_integer(input.reals[i]) : input.integers[i];
      result.integers[i] = narrow_to(value, type, call);
    }
  }
  return result;
}

std::vector<Constant> fold_cast(const FoldCall& call) {
  const Kind kind = kind_of_attribute(call, "to");
  return only(cast(call, call.input(0), kind, static_cast<ElementType>(call.node.integer("to", 0))));
}

// A constant keeps the kind of its type only: the widest of that kind.
std::vector<Constant> fold_cast_like(const FoldCall& call) {
  const Kind kind = call.input(1).kind;
  return only(cast(call, call.input(0), kind, kind == Kind::real ? ElementType::f64 : ElementType::i64));
}

constexpr FoldRow kCastingFolds[] = {{"Cast", fold_cast}, {"CastLike", fold_cast_like}};

}  // namespace

Kind kind_of_attribute(const FoldCall& call, std::string_view attribute) {
  const std::int64_t number = call.node.integer(attribute, 0);
  const std::optional<Kind> kind = kind_of(to_element_type(number));
  if (!kind) call.fail("attribute {} is element type {} of ONNX, which is not read", attribute, number);
  return *kind;
}

std::span<const FoldRow> casting_folds() { return kCastingFolds; }

}  // namespace overtake::onnx
