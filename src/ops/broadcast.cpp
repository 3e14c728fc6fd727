#include "ops/broadcast.h"

#include <algorithm>

namespace overtake {

Shape broadcast(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.rank, b.rank);
  Shape out;
  out.rank = static_cast<std::uint8_t>(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const auto dim = [&](const Shape& s) { return i < rank - s.rank ? std::int64_t{1} : s[i - (rank - s.rank)]; };
    const std::int64_t da = dim(a), db = dim(b);
    if (da != db && da != 1 && db != 1)
      fail_shape("shapes {} and {} cannot be broadcast together", to_string(a), to_string(b));
    out[i] = da == 1 ? db : da;
  }
  return out;
}

}  // namespace overtake
