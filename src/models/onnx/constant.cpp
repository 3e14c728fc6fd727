#include "models/onnx/constant.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/bf16.h"
#include "base/half.h"
#include "models/onnx/dims.h"
#include "models/onnx/fold.h"

namespace overtake::onnx {
namespace {

// The elements of `bytes`, which need not be aligned, as numbers of type Stored; each through `convert`.
template <class Stored, class Value, class Convert>
void read_values(std::span<const std::byte> bytes, std::vector<Value>& values, const Convert& convert) {
  values.reserve(bytes.size() / sizeof(Stored));
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Stored)) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + at, sizeof(Stored));
    values.push_back(convert(stored));
  }
}

template <class Stored>
void read_integers(std::span<const std::byte> bytes, std::vector<std::int64_t>& values) {
  read_values<Stored>(bytes, values, [](Stored stored) { return static_cast<std::int64_t>(stored); });
}

void read_unsigned_integers(std::span<const std::byte> bytes, std::vector<std::int64_t>& values,
                            const std::string& where) {
  read_values<std::uint64_t>(bytes, values, [&](std::uint64_t stored) {
    if (stored >> 63 != 0) fail_user("{}: {} is too large to compute with; export the model again", where, stored);
    return static_cast<std::int64_t>(stored);
  });
}

}  // namespace

std::int64_t Constant::elements() const { return kind == Kind::real ? std::ssize(reals) : std::ssize(integers); }

Constant integer_constant(std::vector<std::int64_t> values) {
  return {.kind = Constant::Kind::integer, .dims = {std::ssize(values)}, .reals = {}, .integers = std::move(values)};
}

Constant scalar_constant(std::int64_t value) {
  return {.kind = Constant::Kind::integer, .dims = {}, .reals = {}, .integers = {value}};
}

void Budget::take(std::int64_t elements, const std::string& where) {
  if (elements > left_) {
    fail_user(
        "{}: the constants of the model would take {} elements where {} are left, much more than the file holds; "
        "export the model with constants folded",
        where, elements, left_);
  }
  left_ -= elements;
}

Constant read_constant(const Tensor& tensor, Budget& budget, const std::string& where) {
  const std::optional<Constant::Kind> kind = kind_of(tensor.type);
  if (!kind) fail_user("{}: text cannot be computed with; export a model of numbers", where);
  const std::optional<std::int64_t> elements = count_elements(tensor.dims);
  OVERTAKE_CHECK(elements && *elements * element_bytes(tensor.type) == std::ssize(tensor.bytes),
                 "{}: {} bytes do not fit the shape", where, tensor.bytes.size());
  budget.take(*elements, where);
  Constant constant{.kind = *kind, .dims = tensor.dims, .reals = {}, .integers = {}};
  switch (tensor.type) {
    case ElementType::f32:
      read_values<float>(tensor.bytes, constant.reals, [](float x) { return static_cast<double>(x); });
      break;
    case ElementType::f64:
      read_values<double>(tensor.bytes, constant.reals, [](double x) { return x; });
      break;
    case ElementType::f16:
      read_values<std::uint16_t>(tensor.bytes, constant.reals,
                                 [](std::uint16_t x) { return static_cast<double>(half_to_float(x)); });
      break;
    case ElementType::bf16:
      read_values<bf16>(tensor.bytes, constant.reals, [](bf16 x) { return static_cast<double>(to_float(x)); });
      break;
    case ElementType::boolean:
      read_values<std::uint8_t>(tensor.bytes, constant.integers,
                                [](std::uint8_t x) { return std::int64_t{x == 0 ? 0 : 1}; });
      break;
    case ElementType::u8:
      read_integers<std::uint8_t>(tensor.bytes, constant.integers);
      break;
    case ElementType::i8:
      read_integers<std::int8_t>(tensor.bytes, constant.integers);
      break;
    case ElementType::u16:
      read_integers<std::uint16_t>(tensor.bytes, constant.integers);
      break;
    case ElementType::i16:
      read_integers<std::int16_t>(tensor.bytes, constant.integers);
      break;
    case ElementType::i32:
      read_integers<std::int32_t>(tensor.bytes, constant.integers);
      break;
    case ElementType::u32:
      read_integers<std::uint32_t>(tensor.bytes, constant.integers);
      break;
    case ElementType::u64:
      read_unsigned_integers(tensor.bytes, constant.integers, where);
      break;
    default:
      read_integers<std::int64_t>(tensor.bytes, constant.integers);
      break;
  }
  return constant;
}

}  // namespace overtake::onnx
