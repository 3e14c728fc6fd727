// The tables with a row for each op: none is missing, none is there twice.

#include <gtest/gtest.h>

#include "exec/cpu/bindings.h"
#include "exec/op_rows.h"
#include "ops/op.h"

namespace overtake {
namespace {

constexpr auto rows_of_all_ops() {
  std::array<OpRow<CpuBinding>, kOpCount - 1> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = {static_cast<Op>(i), bind_add};
  return rows;
}

// What the static_asserts beside the tables of both backends ask.
TEST(OpTables, AMissingOrDoubledRowIsFound) {
  static_assert(has_each_op_once(rows_of_all_ops()));
  auto doubled = rows_of_all_ops();
  doubled[3].op = Op::linear;  // instead of its own
  EXPECT_FALSE(has_each_op_once(doubled));
  auto simulated = rows_of_all_ops();
  simulated[3].op = Op::block;
  EXPECT_FALSE(has_each_op_once(simulated));
  EXPECT_FALSE(has_each_op_once(std::to_array<OpRow<CpuBinding>>({{Op::linear, bind_linear}})));
}

TEST(OpTables, EveryOpIsBoundToKernelsOfItsOwn) {
  const auto keeps_bytes = [](Op op) { return op == Op::reshape || op == Op::stop_gradient; };  // there is one way
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    EXPECT_EQ(cpu_binding(op).bind != nullptr, is_executed(op)) << to_string(op);
    for (std::size_t j = 0; j < i; ++j) {
      const auto other = static_cast<Op>(j);
      if (keeps_bytes(op) && keeps_bytes(other)) continue;
      EXPECT_NE(cpu_binding(op).bind, cpu_binding(other).bind) << to_string(op) << " and " << to_string(other);
    }
  }
}

TEST(OpTables, TraitsAreThoseOfTheirOp) {
  for (std::size_t i = 0; i < kOpCount; ++i) EXPECT_EQ(traits(static_cast<Op>(i)).op, static_cast<Op>(i));
}

}  // namespace
}  // namespace overtake
