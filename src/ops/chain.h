#pragma once
// Programs of the op chain: steps over registers, each of one number per element of the result.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "overtake/graph.h"

namespace overtake {

struct ChainStep {
  enum class Kind : std::uint8_t {
    add,       // a + b
    mul,       // a * b
    function,  // f(a)
    slope      // f'(a) * b; a is what f was applied to or, where derivative_uses_output, what it made
  };
  Kind kind = Kind::add;
  std::uint32_t a = 0, b = 0;  // registers: the operands, then one per step
  Attrs function = {};         // as of an activation
};

struct Chain {
  // What kernels hold.
  static constexpr std::size_t kMostOperands = 8, kMostSteps = 32, kMostResults = 8, kMostSlots = 16;
  static constexpr std::int64_t kMostElements = (std::int64_t{1} << 31) - 4096;

  std::uint32_t operands = 0;
  std::vector<ChainStep> steps;
  std::vector<std::uint32_t> results;  // registers
};

Attrs attrs_of(const Chain& chain);
Chain chain_of(const Attrs& attrs, std::size_t operands);  // ShapeError where the program is none

// Where registers are held while a chain runs: operand i in slot i, and a slot is used again once nobody needs what is
// in it. A step may write what it reads.
struct ChainSlots {
  std::vector<std::uint8_t> of_register;
  std::size_t count = 0;
};
ChainSlots slots_of(const Chain& chain);
bool fits_kernels(const Chain& chain);

// The backward of a chain with one result y, which is recomputed inside as far as it is needed.
struct ChainGradient {
  Chain chain;                          // operands: the forward's below, then y if it is read, then dy
  std::vector<std::uint32_t> operands;  // of the forward chain
  bool reads_result = false;
  // Per operand of the forward chain which result of this one is its gradient; kNone: not wanted; kWhole: dy itself.
  static constexpr std::uint32_t kWhole = kNone - 1;
  std::vector<std::uint32_t> gradients;
};
ChainGradient gradient_of(const Chain& forward, const std::vector<bool>& wants);

// How a chain uses an operand that alone one add or mul reads, from whose result only adds lead to the chain's: then
// the operand's gradient is dy, times the other factor of a mul, which must be an operand. Broadcast operands that are
// trained must be used so; their gradients are summed by add's and mul's own tasks.
struct DirectUse {
  ChainStep::Kind kind = ChainStep::Kind::add;
  std::uint32_t other = 0;  // register
};
std::optional<DirectUse> direct_use(const Chain& chain, std::uint32_t operand);

// How an operand that is broadcast lies in the result's physical dimensions: element i of the result meets element
// (i / inner) % extent. None where that is not so.
struct Repeated {
  std::int64_t inner = 1, extent = 1;
};
std::optional<Repeated> repeated(const Shape& operand, const Shape& result, std::span<const std::uint8_t> order);

}  // namespace overtake
