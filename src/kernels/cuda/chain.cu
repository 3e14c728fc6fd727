#include "kernels/cuda/access.cuh"
#include "kernels/cuda/activation_functions.cuh"
#include "kernels/cuda/chain.h"
#include "kernels/cuda/launch.h"

namespace overtake::cuda {

namespace {

using access::Divisor;
using access::kPackWidth;
using access::load_pack;
using access::narrow;
using access::Pack;
using access::parts;
using access::store_pack;
using access::widen;
using kernels::ChainOp;
using kernels::ChainStep;

// What the kernel is given: the program, the arrays, and how to find elements of those that repeat.
template <class T>
struct Arguments {
  ChainProgram program;
  const T* in[ChainProgram::kMostOperands];
  T* out[ChainProgram::kMostResults];
  Divisor inner[ChainProgram::kMostOperands], extent[ChainProgram::kMostOperands];
  std::uint32_t count;
};

// Slots of this thread: element v of slot s is memory[(s * V + v) * threads], so that neighbours lie side by side.
template <int V>
struct Slots {
  float* memory;
  unsigned threads;

  __device__ float& at(int slot, int v) const { return memory[static_cast<unsigned>(slot * V + v) * threads]; }
};

template <int V>
__device__ void run_step(const ChainStep& step, const Slots<V>& slots) {
  switch (step.op) {
    case ChainOp::add:
#pragma unroll
      for (int v = 0; v < V; ++v) slots.at(step.to, v) = slots.at(step.a, v) + slots.at(step.b, v);
      return;
    case ChainOp::mul:
#pragma unroll
      for (int v = 0; v < V; ++v) slots.at(step.to, v) = slots.at(step.a, v) * slots.at(step.b, v);
      return;
    case ChainOp::function:
      functions::dispatch(step.function, [&](auto f) {
#pragma unroll
        for (int v = 0; v < V; ++v) slots.at(step.to, v) = f.value(slots.at(step.a, v));
      });
      return;
    case ChainOp::slope:
      functions::dispatch(step.function, [&](auto f) {
#pragma unroll
        for (int v = 0; v < V; ++v) slots.at(step.to, v) = f.slope(slots.at(step.a, v)) * slots.at(step.b, v);
      });
      return;
  }
}

// A thread runs the program on V neighbouring elements; those beyond the last one are not loaded or stored. All its
// loads come before its stores, and an element is read by the thread that writes it: in place is fine.
template <class T, int V>
__global__ void chain_kernel(const __grid_constant__ Arguments<T> arguments) {
  extern __shared__ float shared[];
  const ChainProgram& program = arguments.program;
  const Slots<V> slots{shared + threadIdx.x, blockDim.x};
  const std::uint32_t first = (blockIdx.x * blockDim.x + threadIdx.x) * V;
  if (first >= arguments.count) return;
  const bool is_whole = first + V <= arguments.count;
  Pack<T, V> packs[ChainProgram::kMostOperands];  // all on their way before the first is used
#pragma unroll
  for (int i = 0; i < ChainProgram::kMostOperands; ++i)
    if (is_whole && i < program.operands && program.operand[i].extent == 0)
      packs[i] = load_pack<V>(arguments.in[i] + first);
#pragma unroll
  for (int i = 0; i < ChainProgram::kMostOperands; ++i) {
    if (i >= program.operands) break;
    if (program.operand[i].extent != 0) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const std::uint32_t at = arguments.inner[i].divide(first + v).quotient;
        slots.at(i, v) = widen(arguments.in[i][arguments.extent[i].divide(at).remainder]);
      }
    } else if (is_whole) {
#pragma unroll
      for (int v = 0; v < V; ++v) slots.at(i, v) = widen(packs[i].at[v]);
    } else {
      for (int v = 0; v < V; ++v)
        slots.at(i, v) = first + v < arguments.count ? widen(arguments.in[i][first + v]) : 0.0f;
    }
  }
  for (int i = 0; i < program.steps; ++i) run_step<V>(program.step[i], slots);
  for (int j = 0; j < program.results; ++j) {
    const int from = program.result[j];
    if (is_whole) {
      Pack<T, V> pack;
#pragma unroll
      for (int v = 0; v < V; ++v) pack.at[v] = narrow<T>(slots.at(from, v));
      store_pack(arguments.out[j] + first, pack);
    } else {
      for (int v = 0; v < V; ++v)
        if (first + v < arguments.count) arguments.out[j][first + v] = narrow<T>(slots.at(from, v));
    }
  }
}

}  // namespace

template <class T>
void chain(cudaStream_t stream, const ChainProgram& program, std::span<const T* const> in, std::span<T* const> out,
           std::int64_t count) {
  if (count == 0) return;
  constexpr int V = kPackWidth<T>;
  access::require(count <= (std::int64_t{1} << 31) - 4096, "chain: more elements than 32 bits count");
  Arguments<T> arguments{};
  arguments.program = program;
  arguments.count = static_cast<std::uint32_t>(count);
  for (std::size_t i = 0; i < in.size(); ++i) {
    require_aligned("chain", {in[i]});
    arguments.in[i] = in[i];
    if (program.operand[i].extent == 0) continue;
    arguments.inner[i] = Divisor(static_cast<std::uint32_t>(program.operand[i].inner));
    arguments.extent[i] = Divisor(static_cast<std::uint32_t>(program.operand[i].extent));
  }
  for (std::size_t j = 0; j < out.size(); ++j) {
    require_aligned("chain", {out[j]});
    arguments.out[j] = out[j];
  }
  // Many slots leave room for fewer threads in the 48 KiB of a block.
  const int bytes_per_thread = program.slots * V * static_cast<int>(sizeof(float));
  const int threads = bytes_per_thread * 128 <= 48 * 1024 ? 128 : 64;
  const unsigned blocks = grid_blocks("chain", parts(count, threads * V));
  chain_kernel<T, V><<<blocks, threads, static_cast<std::size_t>(threads * bytes_per_thread), stream>>>(arguments);
  check_launch("chain");
}

template void chain(cudaStream_t, const ChainProgram&, std::span<const float* const>, std::span<float* const>,
                    std::int64_t);
template void chain(cudaStream_t, const ChainProgram&, std::span<const bf16* const>, std::span<bf16* const>,
                    std::int64_t);

}  // namespace overtake::cuda
