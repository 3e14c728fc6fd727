#include "train/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace overtake {
namespace {

static_assert(std::endian::native == std::endian::little, "npy elements are read as they are");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::string_view kRemedy = "write it with numpy.save";

struct TypeRow {
  NpyType type;
  std::string_view descr, name;  // numpy's
  std::int64_t bytes;
};

constexpr TypeRow kTypes[] = {{NpyType::f32, "<f4", "float32", 4},
                              {NpyType::f64, "<f8", "float64", 8},
                              {NpyType::u8, "|u1", "uint8", 1},
                              {NpyType::i32, "<i4", "int32", 4},
                              {NpyType::i64, "<i8", "int64", 8}};

const TypeRow& row_of(NpyType type) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& row) { return row.type == type; });
}

// What follows "'key':" in the header, a Python dictionary; empty when the key is not there.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::string quoted = fmt::format("'{}'", key);
  const std::size_t at = header.find(quoted);
  if (at == std::string_view::npos) return {};
  std::string_view value = header.substr(at + quoted.size());
  value.remove_prefix(std::min(value.find_first_not_of(" :"), value.size()));
  return value;
}

// "(3, 4)", "(3,)", "()".
std::optional<std::vector<std::int64_t>> parse_tuple(std::string_view text) {
  const std::size_t close = text.find(')');
  if (!text.starts_with('(') || close == std::string_view::npos) return std::nullopt;
  text = text.substr(1, close - 1);
  std::vector<std::int64_t> dims;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(" ,"), text.size()));
    if (text.empty()) return dims;
    std::int64_t dim = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), dim);
    if (error != std::errc() || dim < 0) return std::nullopt;
    dims.push_back(dim);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
}

// The header's place in the file: version 1 has a 16-bit length, later ones 32 bits.
std::pair<std::size_t, std::size_t> header_place(const std::string& content, const std::string& file) {
  const std::string_view text = content;
  const std::size_t version_at = kMagic.size();
  if (!text.starts_with(kMagic) || text.size() < version_at + 6) fail_user("{}: no npy file; {}", file, kRemedy);
  const bool short_length = text[version_at] == 1;
  const std::size_t length_bytes = short_length ? 2 : 4;
  std::uint32_t length = 0;
  std::memcpy(&length, text.data() + version_at + 2, length_bytes);
  const std::size_t begin = version_at + 2 + length_bytes;
  if (length > text.size() - begin) fail_user("{}: it ends within its header; {} again", file, kRemedy);
  return {begin, length};
}

NpyType parse_type(std::string_view descr, const std::string& file) {
  for (const TypeRow& row : kTypes) {
    if (descr.starts_with(fmt::format("'{}'", row.descr))) return row.type;
  }
  fail_user("{}: elements of type {}; convert them with astype to float32, float64, uint8, int32 or int64", file,
            descr.substr(0, descr.find(',')));
}

// Bytes of the array, or -1 beyond 2^63.
std::int64_t array_bytes(const NpyArray& array) {
  std::int64_t bytes = row_of(array.type).bytes;
  for (const std::int64_t dim : array.dims) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return -1;
  }
  return bytes;
}

// Calls visit(element) for `count` elements from `first` on, each in its own type.
template <class Visit>
void visit_elements(const NpyArray& array, std::int64_t first, std::int64_t count, const Visit& visit) {
  const auto each = [&]<class T>(T) {
    const char* from = array.content.data() + array.begin + static_cast<std::size_t>(first) * sizeof(T);
    for (std::int64_t i = 0; i < count; ++i, from += sizeof(T)) {
      T element;
      std::memcpy(&element, from, sizeof(T));
      visit(element);
    }
  };
  switch (array.type) {
    case NpyType::f32:
      return each(float{});
    case NpyType::f64:
      return each(double{});
    case NpyType::u8:
      return each(std::uint8_t{});
    case NpyType::i32:
      return each(std::int32_t{});
    case NpyType::i64:
      return each(std::int64_t{});
  }
}

}  // namespace

NpyArray read_npy(const std::filesystem::path& path) {
  const std::string file = path.string();
  NpyArray array;
  array.content = read_file(path);
  const auto [begin, length] = header_place(array.content, file);
  array.begin = begin + length;
  const std::string_view header = std::string_view(array.content).substr(begin, length);

  array.type = parse_type(value_of(header, "descr"), file);
  if (!value_of(header, "fortran_order").starts_with("False")) {
    fail_user("{}: not in C order; convert it with numpy.ascontiguousarray", file);
  }
  const auto dims = parse_tuple(value_of(header, "shape"));
  if (!dims) fail_user("{}: no shape in its header; {} again", file, kRemedy);
  array.dims = *dims;
  const std::int64_t expected = array_bytes(array);
  const std::int64_t present = std::ssize(array.content) - static_cast<std::int64_t>(array.begin);
  if (expected != present) {
    const std::string needed = expected < 0 ? "more bytes than a file can have" : fmt::format("{} bytes", expected);
    fail_user("{}: shape ({}) needs {} and the file has {}; {} again", file, fmt::join(array.dims, ", "), needed,
              present, kRemedy);
  }
  return array;
}

std::string_view name_of(NpyType type) { return row_of(type).name; }

bool is_float(NpyType type) { return type == NpyType::f32 || type == NpyType::f64; }

std::int64_t element_count(const NpyArray& array) {
  return std::accumulate(array.dims.begin(), array.dims.end(), std::int64_t{1}, std::multiplies<>());
}

void copy_elements(const NpyArray& array, std::int64_t first, std::int64_t count, float* out) {
  visit_elements(array, first, count, [&](auto element) { *out++ = static_cast<float>(element); });
}

void copy_elements(const NpyArray& array, std::int64_t first, std::int64_t count, std::int32_t* out) {
  visit_elements(array, first, count, [&](auto element) { *out++ = static_cast<std::int32_t>(element); });
}

bool is_one(const Scale& scale) { return scale.over == 1 && scale.under == 1; }

void copy_elements(const NpyArray& array, std::int64_t first, std::int64_t count, const Scale& scale, float* out) {
  if (is_one(scale)) return copy_elements(array, first, count, out);
  visit_elements(array, first, count, [&](auto element) {
    *out++ = static_cast<float>(static_cast<double>(element) * scale.over / scale.under);
  });
}

ElementRange element_range(const NpyArray& array, std::optional<std::int64_t> left_out) {
  OVERTAKE_CHECK(!is_float(array.type), "the range of an array of floats");
  ElementRange range{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  visit_elements(array, 0, element_count(array), [&](auto element) {
    const auto value = static_cast<std::int64_t>(element);
    if (value == left_out) return;
    range.least = std::min(range.least, value);
    range.greatest = std::max(range.greatest, value);
  });
  return range;
}

}  // namespace overtake
