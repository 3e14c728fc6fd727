// Chains against the formula in double precision, over odd splits, in place, and with operands that repeat.

#include "kernels/cpu/chain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/block.h"

namespace overtake::kernels {
namespace {

// r3 = a * c, r4 = tanh(r3), r5 = r4 + b, r6 = tanh'(from r4) * b; r5 and r6.
ChainProgram program_of(ChainOperand repeats) {
  ChainProgram p;
  p.operands = 3, p.steps = 4, p.results = 2, p.slots = 4;
  p.operand[2] = repeats;
  p.step[0] = {ChainOp::mul, 0, 2, 0, {}};
  p.step[1] = {ChainOp::function, 0, 0, 2, {Activation::tanh}};
  p.step[2] = {ChainOp::add, 2, 1, 3, {}};
  p.step[3] = {ChainOp::slope, 2, 1, 2, {Activation::tanh}};
  p.result[0] = 3, p.result[1] = 2;
  return p;
}

template <class T>
std::vector<T> numbers(std::int64_t count, std::int64_t step) {
  std::vector<T> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(from_float<T>(static_cast<float>(i * step % 113 - 56) / 32));
  return all;
}

template <class T>
void check(std::int64_t count, ChainOperand repeats, double bound) {
  SCOPED_TRACE(::testing::Message() << count << " elements, " << repeats.inner << " x " << repeats.extent);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<T> a = numbers<T>(count, 29), b = numbers<T>(count, 31);
  const std::vector<T> c = numbers<T>(repeats.extent == 0 ? count : repeats.extent, 37);
  std::vector<T> first(a.size()), second(a.size());
  const T* const in[] = {a.data(), b.data(), c.data()};
  T* const out[] = {first.data(), second.data()};
  const ChainProgram program = program_of(repeats);
  chain<T>(program, in, out, count, 0, blocks_of(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t k = repeats.extent == 0 ? i : i / repeats.inner % repeats.extent;
    const double x = static_cast<double>(to_float(a[at(i)])) * static_cast<double>(to_float(c[at(k)]));
    const double y = static_cast<double>(to_float(b[at(i)])), t = std::tanh(x);
    ASSERT_NEAR(static_cast<double>(to_float(first[at(i)])), t + y, bound * 3) << i;
    ASSERT_NEAR(static_cast<double>(to_float(second[at(i)])), (1 - t * t) * y, bound * 3) << i;
  }
  // Block by block, and on the bytes of the operands.
  T* const in_place[] = {b.data(), a.data()};
  for (std::int64_t block = 0; block < blocks_of(count); ++block)
    chain<T>(program, in, in_place, count, block, block + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(to_float(b[at(i)]), to_float(first[at(i)])) << i;
    ASSERT_EQ(to_float(a[at(i)]), to_float(second[at(i)])) << i;
  }
}

TEST(KernelChain, IsTheFormula) {
  for (const std::int64_t count : {1, 7, 255, 257, 1024, 5003})
    for (const ChainOperand repeats : {ChainOperand{}, {1, 1}, {1, 13}, {9, 5}, {300, 2}, {1, 700}}) {
      check<float>(count, repeats, 1e-6);
      check<bf16>(count, repeats, 4e-3);
    }
}

}  // namespace
}  // namespace overtake::kernels
