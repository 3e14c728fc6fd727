#pragma once
// All steps of a recurrence in one kernel, for bf16: every block keeps the weights of its hidden units in registers,
// and the blocks exchange their results through global memory after every step. A Cell is described in
// rnn_recurrence.cuh. For .cu files only.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/rnn_plan.h"

namespace overtake::cuda::rnn_detail {

// d += a b: a [16, 16] rows of weights, b [16, 8] batch rows, bf16.
__device__ inline void multiply_add(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// What all threads of the block wrote before the last __syncthreads is visible to whoever sees the count.
__device__ inline void arrive(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ inline void wait_for(const unsigned* counter, unsigned count) {
  unsigned seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  } while (seen < count);
}

// The eight weights from the k-th on.
template <class Cell>
__device__ inline uint4 eight_weights(const Cell& cell, int row, int unit, int k) {
  if constexpr (Cell::kNeighbours) {
    return *reinterpret_cast<const uint4*>(cell.weight(row, unit, k));
  } else {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = cell.weight(row, unit, k + 2 * i)->bits |
                 static_cast<unsigned>(cell.weight(row, unit, k + 2 * i + 1)->bits) << 16;
    }
    return {words[0], words[1], words[2], words[3]};
  }
}

// A fragment: 16 rows by a depth of 32. Lane 4 g + t has the factors 8 t to 8 t + 7 of rows g and g + 8. The matrix
// instruction takes other places along the depth; that does not matter, since both operands agree.
template <class Cell, int row_tiles, int depth_pieces>
struct WeightFragments {
  uint4 at[row_tiles][depth_pieces][2];

  __device__ WeightFragments(const Cell& cell, const PersistentPlan& plan, int first_unit, int first_row,
                             int first_depth) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int k = 0; k < depth_pieces; ++k) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = first_row + m * 16 + half * 8 + lane / 4, depth = first_depth + k * 32 + lane % 4 * 8;
          const int of_unit = row / plan.units, unit = first_unit + row % plan.units;
          const bool is_there = of_unit < Cell::kRows && unit < cell.hidden && depth < cell.depth();
          at[m][k][half] = is_there ? eight_weights(cell, of_unit, unit, depth) : uint4{};
        }
      }
    }
  }
};

// grid: groups * unit_blocks, all on multiprocessors at once. counters: one for each group, zero at first.
template <class Cell, int row_tiles, int depth_pieces>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    persistent_kernel(const Cell cell, const PersistentPlan plan, int first_batch_row, unsigned char* counters) {
  extern __shared__ float partials[];  // [rows][depth_warps][pitch]
  // Groups of eight batch rows whose states are on their way at a time, as registers allow.
  constexpr bool is_full = row_tiles * depth_pieces == kMostFragments;
  constexpr int kEights = std::clamp((is_full ? 4 : 8) / depth_pieces, 1, is_full ? 2 : 4);
  constexpr int kChains = row_tiles <= 2 ? 2 : 1;  // sums of a fragment, so that instructions need not wait
  const int group = static_cast<int>(blockIdx.x) / plan.unit_blocks;
  const int first_unit = static_cast<int>(blockIdx.x) % plan.unit_blocks * plan.units;
  const int first_b = first_batch_row + group * plan.rows;
  auto* counter = reinterpret_cast<unsigned*>(counters + group * kCounterBytes);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int first_row = warp % plan.row_warps * row_tiles * 16, depth_warp = warp / plan.row_warps;
  const int first_depth = depth_warp * depth_pieces * 32, pitch = plan.pitch();
  const WeightFragments<Cell, row_tiles, depth_pieces> weights(cell, plan, first_unit, first_row, first_depth);

  // The unit and the batch row this thread finishes.
  const int local_b = thread / plan.units, unit = first_unit + thread % plan.units, b = first_b + local_b;
  const bool has_unit = local_b < plan.rows && unit < cell.hidden && b < cell.batch;
  float carried = 0;
  typename Cell::Known known{};
  typename Cell::Loaded loaded{};
  if (has_unit) {
    known = cell.known(unit);
    loaded = cell.load(b, cell.time(0), unit);
  }
  for (int step = 0; step < cell.steps; ++step) {
    float sums[Cell::kRows] = {};
    if (step > 0) {
      if (thread == 0) wait_for(counter, static_cast<unsigned>(step) * static_cast<unsigned>(plan.unit_blocks));
      __syncthreads();
      const int before = cell.time(step - 1);
      for (int first = 0; first < plan.rows; first += 8 * kEights) {
        uint4 states[kEights][depth_pieces];
#pragma unroll
        for (int n = 0; n < kEights; ++n) {
          const int row = first + n * 8 + lane / 4;
          const bool is_there = row < plan.rows && first_b + row < cell.batch;
#pragma unroll
          for (int k = 0; k < depth_pieces; ++k) {
            const int depth = first_depth + k * 32 + lane % 4 * 8;
            states[n][k] =
                is_there && depth < cell.depth()
                    ? *reinterpret_cast<const uint4*>(cell.exchanged(first_b + row, before) + cell.column(depth))
                    : uint4{};
          }
        }
#pragma unroll
        for (int n = 0; n < kEights; ++n) {
          if (first + n * 8 >= plan.rows) break;
          float products[kChains][row_tiles][4] = {};
#pragma unroll
          for (int k = 0; k < depth_pieces; ++k) {
#pragma unroll
            for (int m = 0; m < row_tiles; ++m) {
              const uint4 &upper = weights.at[m][k][0], &lower = weights.at[m][k][1], &state = states[n][k];
              multiply_add(products[0][m], upper.x, lower.x, upper.y, lower.y, state.x, state.y);
              multiply_add(products[kChains - 1][m], upper.z, lower.z, upper.w, lower.w, state.z, state.w);
            }
          }
          // Lane 4 g + t has rows g and g + 8 of batch rows 2 t and 2 t + 1.
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int batch_row = first + n * 8 + lane % 4 * 2 + i % 2;
              const int row = first_row + m * 16 + i / 2 * 8 + lane / 4;
              float product = products[0][m][i];
              if constexpr (kChains == 2) product += products[1][m][i];
              partials[(batch_row * plan.depth_warps + depth_warp) * pitch + row] = product;
            }
          }
        }
      }
      __syncthreads();
      if (has_unit) {
        const float* mine = partials + local_b * plan.depth_warps * pitch + thread % plan.units;
#pragma unroll 4
        for (int d = 0; d < plan.depth_warps; ++d) {
#pragma unroll
          for (int row = 0; row < Cell::kRows; ++row) sums[row] += mine[d * pitch + row * plan.units];
        }
      }
    }
    const int t = cell.time(step);
    typename Cell::Saved saved{};
    if (has_unit) saved = cell.finish(known, loaded, sums, carried, b, t, unit);
    if (step + 1 < cell.steps) {
      __syncthreads();
      if (thread == 0) arrive(counter);
      if (has_unit) loaded = cell.load(b, cell.time(step + 1), unit);
    }
    if (has_unit) cell.save(saved, b, t, unit);
  }
}

// Calls body(integral_constant<int, row_tiles>, integral_constant<int, depth_pieces>) for those of a plan.
template <class Body>
void with_fragments(const PersistentPlan& plan, const Body& body) {
  using std::integral_constant;
  const auto with_pieces = [&](auto tiles) {
    const auto try_pieces = [&](auto pieces) {
      if constexpr (tiles * pieces <= kMostFragments) {
        if (plan.depth_pieces == pieces) body(tiles, pieces);
      }
    };
    try_pieces(integral_constant<int, 1>{});
    try_pieces(integral_constant<int, 2>{});
    try_pieces(integral_constant<int, 4>{});
    try_pieces(integral_constant<int, 8>{});
  };
  switch (plan.row_tiles) {
    case 1:
      return with_pieces(integral_constant<int, 1>{});
    case 2:
      return with_pieces(integral_constant<int, 2>{});
    case 4:
      return with_pieces(integral_constant<int, 4>{});
    default:
      return with_pieces(integral_constant<int, 8>{});
  }
}

template <class Cell>
void run_persistent(cudaStream_t stream, const char* name, Cell cell, PersistentPlan plan, void* scratch) {
  auto* counters = static_cast<unsigned char*>(scratch);
  cudaMemsetAsync(counters, 0, static_cast<std::size_t>(plan.launches * plan.groups * kCounterBytes), stream);
  with_fragments(plan, [&](auto tiles, auto pieces) {
    const auto* kernel = reinterpret_cast<const void*>(persistent_kernel<Cell, tiles, pieces>);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes());
    for (int first_row = 0; first_row < cell.batch; first_row += plan.groups * plan.rows) {
      void* arguments[] = {&cell, &plan, &first_row, &counters};
      cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(plan.groups * plan.unit_blocks)),
                                  dim3(kPersistentThreads), arguments, static_cast<std::size_t>(plan.shared_bytes()),
                                  stream);
      check_launch(name);
      counters += plan.groups * kCounterBytes;
    }
  });
}

}  // namespace overtake::cuda::rnn_detail
