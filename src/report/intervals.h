#pragma once
// Stretches of time.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace overtake {

struct Interval {
  std::int64_t begin = 0, end = 0;
};
using Intervals = std::vector<Interval>;

// Sorted, apart, none empty.
inline Intervals joined(Intervals list) {
  std::ranges::sort(list, {}, &Interval::begin);
  Intervals out;
  for (const Interval& i : list) {
    if (i.begin >= i.end) continue;
    if (!out.empty() && i.begin <= out.back().end)
      out.back().end = std::max(out.back().end, i.end);
    else
      out.push_back(i);
  }
  return out;
}

// Of all of them together.
inline std::int64_t length(const Intervals& list) {
  std::int64_t sum = 0;
  for (const Interval& i : joined(list)) sum += i.end - i.begin;
  return sum;
}

}  // namespace overtake
