// y = x0 + x1 + ..., from left to right
// any kind: reads x0, x1, ...   writes y

#include "ops/rules.h"

namespace overtake {
namespace {

std::vector<InPlace> in_place(const Task& t) {
  std::vector<InPlace> all;
  for (std::uint8_t i = 0; i < t.reads; ++i) all.push_back({i, 0});
  return all;
}

}  // namespace

OpTraits sum_traits() { return {.op = Op::sum, .in_place = in_place}; }

}  // namespace overtake
