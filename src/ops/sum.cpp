// y = x0 + x1 + ..., from left to right, in float32 and rounded once
// any kind: reads x0, x1, ...   writes y      (all of one type; x0 + x1 may have types of their own)

#include <algorithm>

#include "ops/rules.h"

namespace overtake {
namespace {

std::vector<InPlace> in_place(const Task& t) {
  std::vector<InPlace> all;
  const auto reads = std::min<std::size_t>(t.reads, 256);  // those that an InPlace can name
  for (std::size_t i = 0; i < reads; ++i) all.push_back({static_cast<std::uint8_t>(i), 0});
  return all;
}

}  // namespace

OpTraits sum_traits() { return {.op = Op::sum, .in_place = in_place}; }

}  // namespace overtake
