#pragma once
// Short elementwise programs over several arrays, in one pass over memory. Unit: block of 1024 elements (block.h). T is
// float or bf16; in between everything is float.

#include <array>
#include <cstdint>
#include <span>

#include "base/bf16.h"
#include "kernels/cpu/activation.h"

namespace overtake::kernels {

enum class ChainOp : std::uint8_t {
  add,       // a + b
  mul,       // a * b
  function,  // f(a)
  slope      // f'(a) * b, where a is x or y as backward_needs_input says
};

// Slots hold a piece of an array each; `to` may be a or b.
struct ChainStep {
  ChainOp op = ChainOp::add;
  std::uint8_t a = 0, b = 0, to = 0;
  ActivationFunction function = {};
};

// Element i of the result meets element (i / inner) % extent; extent 0: element i.
struct ChainOperand {
  std::int64_t inner = 1, extent = 0;
};

struct ChainProgram {
  static constexpr int kMostOperands = 8, kMostSteps = 32, kMostResults = 8, kMostSlots = 16;
  int operands = 0, steps = 0, results = 0, slots = 0;
  std::array<ChainOperand, kMostOperands> operand;  // number i starts in slot i
  std::array<ChainStep, kMostSteps> step;
  std::array<std::uint8_t, kMostResults> result;  // slots
};

// out[j] [count] = the program's result j of in[0], in[1], ... May be in place: an array of out may be one of in that
// has `count` elements.
template <class T>
void chain(const ChainProgram& program, std::span<const T* const> in, std::span<T* const> out, std::int64_t count,
           std::int64_t block_begin, std::int64_t block_end);

}  // namespace overtake::kernels
