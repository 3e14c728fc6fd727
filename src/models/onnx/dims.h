#pragma once
// Dimensions that a file may have. Within these bounds no product of dimensions or sum of offsets overflows.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace overtake::onnx {

inline constexpr std::size_t kMostRank = 32;
inline constexpr std::int64_t kMostDim = std::int64_t{1} << 31;
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

// How many elements there are, or nothing where the bounds are left. Dimensions beside one of 0 obey them too, so that
// strides do not overflow.
inline std::optional<std::int64_t> count_elements(std::span<const std::int64_t> dims) {
  if (dims.size() > kMostRank) return std::nullopt;
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t dim : dims) {
    if (dim < 0 || dim > kMostDim) return std::nullopt;
    empty = empty || dim == 0;
    const std::int64_t factor = std::max(dim, std::int64_t{1});
    if (product > kMostElements / factor) return std::nullopt;
    product *= factor;
  }
  return empty ? 0 : product;
}

// "[2, 3]", cut where it is long.
inline std::string shape_text(std::span<const std::int64_t> dims) {
  const std::size_t shown = std::min(dims.size(), kMostRank);
  return fmt::format("[{}{}]", fmt::join(dims.first(shown), ", "), shown < dims.size() ? ", ..." : "");
}

}  // namespace overtake::onnx
