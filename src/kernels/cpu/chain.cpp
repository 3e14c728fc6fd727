#include "kernels/cpu/chain.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/block.h"

namespace overtake::kernels {

namespace {

// Elements of a piece: sixteen slots of them are half of a first-level cache.
constexpr std::int64_t kPiece = 256;

// Elements [first, first + size) of what an operand is to the result.
template <class T>
void repeat(const ChainOperand& operand, const T* in, std::int64_t first, std::int64_t size, float* to) {
  std::int64_t at = first / operand.inner % operand.extent, within = first % operand.inner;
  for (std::int64_t done = 0; done < size;) {
    if (operand.inner == 1) {
      const std::int64_t run = std::min(size - done, operand.extent - at);
      for (std::int64_t i = 0; i < run; ++i) to[done + i] = to_float(in[at + i]);
      done += run;
      at = 0;
    } else {
      const std::int64_t run = std::min(size - done, operand.inner - within);
      std::fill_n(to + done, run, to_float(in[at]));
      done += run;
      within = 0;
      at = at + 1 == operand.extent ? 0 : at + 1;
    }
  }
}

void run_step(const ChainStep& step, const float* a, const float* b, float* to, std::int64_t size) {
  switch (step.op) {
    case ChainOp::add:
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) to[i] = a[i] + b[i];
      return;
    case ChainOp::mul:
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) to[i] = a[i] * b[i];
      return;
    case ChainOp::function:
      return activation_forward(step.function, a, to, size, 0, 1);
    case ChainOp::slope:
      return activation_backward(step.function, a, a, b, to, size, 0, 1);
  }
}

template <class T>
void run_piece(const ChainProgram& program, std::span<const T* const> in, std::span<T* const> out, std::int64_t first,
               std::int64_t size, float (*memory)[kPiece]) {
  std::array<const float*, ChainProgram::kMostSlots> slot{};  // where what a slot holds is now
  for (std::size_t i = 0; i < in.size(); ++i) {
    slot[i] = memory[i];
    if (program.operand[i].extent != 0) {
      repeat(program.operand[i], in[i], first, size, memory[i]);
    } else if constexpr (std::is_same_v<T, float>) {
      slot[i] = in[i] + first;
    } else {
      for (std::int64_t k = 0; k < size; ++k) memory[i][k] = to_float(in[i][first + k]);
    }
  }
  for (int i = 0; i < program.steps; ++i) {
    const ChainStep& step = program.step[static_cast<std::size_t>(i)];
    run_step(step, slot[step.a], slot[step.b], memory[step.to], size);
    slot[step.to] = memory[step.to];
  }
  for (std::size_t j = 0; j < out.size(); ++j) {
    const float* from = slot[program.result[j]];
    for (std::int64_t k = 0; k < size; ++k) out[j][first + k] = from_float<T>(from[k]);
  }
}

}  // namespace

template <class T>
void chain(const ChainProgram& program, std::span<const T* const> in, std::span<T* const> out, std::int64_t count,
           std::int64_t block_begin, std::int64_t block_end) {
  alignas(64) float memory[ChainProgram::kMostSlots][kPiece];
  for_each_block(count, block_begin, block_end, [&](std::int64_t first, std::int64_t size) {
    for (std::int64_t begin = 0; begin < size; begin += kPiece)
      run_piece(program, in, out, first + begin, std::min(kPiece, size - begin), memory);
  });
}

template void chain(const ChainProgram&, std::span<const float* const>, std::span<float* const>, std::int64_t,
                    std::int64_t, std::int64_t);
template void chain(const ChainProgram&, std::span<const bf16* const>, std::span<bf16* const>, std::int64_t,
                    std::int64_t, std::int64_t);

}  // namespace overtake::kernels
