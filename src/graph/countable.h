#pragma once
// How large a tensor may be.

#include <algorithm>

#include "overtake/types.h"

namespace overtake {

// Up to here, sizes in elements and bytes can be counted, and added up, without an overflow; beyond it nothing fits
// into memory.
inline bool is_countable(const Shape& shape) {
  std::int64_t left = std::int64_t{1} << 40;
  return std::ranges::all_of(shape.span(), [&](std::int64_t d) { return d >= 0 && (d == 0 || (left /= d) > 0); });
}

}  // namespace overtake
