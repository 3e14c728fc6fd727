#pragma once
// numpy's array files, as numpy.save writes them.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace overtake {

enum class NpyType : std::uint8_t { f32, f64, u8, i32, i64 };

struct NpyArray {
  NpyType type = NpyType::f32;
  std::vector<std::int64_t> dims;
  std::string content;    // of the whole file
  std::size_t begin = 0;  // of the elements in `content`, row-major
};

// A damaged or foreign file, Fortran order, big-endian numbers and other types are user errors.
NpyArray read_npy(const std::filesystem::path& path);

bool is_float(NpyType type);
std::string_view name_of(NpyType type);  // numpy's: "uint8"
std::int64_t element_count(const NpyArray& array);

// Elements [first, first + count) as they are, converted. For integers out of 32 bits the result is unspecified: check
// with element_range first.
void copy_elements(const NpyArray& array, std::int64_t first, std::int64_t count, float* out);
void copy_elements(const NpyArray& array, std::int64_t first, std::int64_t count, std::int32_t* out);

// A fraction to multiply by: what 255 divides is to the bit what PyTorch's x / 255 is.
struct Scale {
  double over = 1, under = 1;
};
bool is_one(const Scale& scale);
void copy_elements(const NpyArray& array, std::int64_t first, std::int64_t count, const Scale& scale, float* out);

// The least and the greatest of the elements of an integer array, but for those that are `left_out`; least > greatest
// where there are none.
struct ElementRange {
  std::int64_t least, greatest;
};
ElementRange element_range(const NpyArray& array, std::optional<std::int64_t> left_out = {});

}  // namespace overtake
