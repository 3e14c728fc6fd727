#pragma once
// The tables that say which kernels do which op: rows that name their op, and a check that no op is missing or doubled.

#include <algorithm>
#include <array>
#include <cstddef>

#include "overtake/types.h"

namespace overtake {

template <class Binding>
struct OpRow {
  Op op;
  Binding (*make)();
};

// Blocks of tasks are only simulated, so no backend has kernels for them.
constexpr bool is_executed(Op op) { return op != Op::block; }

// Whether every op that is executed has one row, and every other op none. For a static_assert beside the table.
template <class Binding, std::size_t N>
constexpr bool has_each_op_once(const std::array<OpRow<Binding>, N>& rows) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    const auto count = std::ranges::count(rows, op, &OpRow<Binding>::op);
    if (count != (is_executed(op) ? 1 : 0)) return false;
  }
  return true;
}

// The bindings by op; that of an op without a row is empty.
template <class Binding, std::size_t N>
std::array<Binding, kOpCount> by_op(const std::array<OpRow<Binding>, N>& rows) {
  std::array<Binding, kOpCount> all{};
  for (const OpRow<Binding>& row : rows) all[static_cast<std::size_t>(row.op)] = row.make();
  return all;
}

}  // namespace overtake
