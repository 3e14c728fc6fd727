// y = x0 + x1 + ..., from left to right, in float32 and rounded once
// any kind: reads x0, x1, ...   writes y      (all of one type; x0 + x1 may have types of their own)

#include <algorithm>

#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

std::vector<InPlace> in_place(const Task& t) {
  std::vector<InPlace> all;
  const auto reads = std::min<std::size_t>(t.reads, 256);  // those that an InPlace can name
  for (std::size_t i = 0; i < reads; ++i) all.push_back({static_cast<std::uint8_t>(i), 0});
  return all;
}

void check(const TaskOperands& t) {
  t.expect_float("y");
  for (std::size_t i = 0; i < t.read_groups(); ++i) {
    t.expect_float("x", i);
    t.expect_shape("x", t.written("y")->shape, i);
    if (t.read_groups() > 2) t.expect_type("x", t.read("x")->dtype, i);
  }
}

constexpr TaskRule kTasks[] = {{kForwardOrGradient, "x ... -> y", check}};

}  // namespace

OpTraits sum_traits() { return {.op = Op::sum, .in_place = in_place, .tasks = kTasks}; }

}  // namespace overtake
