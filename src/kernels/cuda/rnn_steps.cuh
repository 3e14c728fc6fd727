#pragma once
// A recurrence with a kernel for every step, for any shape. A Cell is described in rnn_recurrence.cuh. For .cu files
// only.

#include <cstdint>

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/launch.h"

namespace overtake::cuda::rnn_detail {

// Units and batch rows of a block, and threads that share out the depth of each of its sums.
inline constexpr int kStepUnits = 8, kStepRows = 8, kStepSlices = 4;
inline constexpr int kStepThreads = kStepUnits * kStepRows * kStepSlices;
// Depth in shared memory at a time, for each of the slices and for all.
inline constexpr int kSliceDepth = 32, kStepDepth = kSliceDepth * kStepSlices;

// The part of all sums of a unit and a batch row that one slice has.
template <class Cell>
__device__ inline void add_slices(const Cell& cell, int before, int first_unit, int first_b,
                                  float (&sums)[Cell::kRows]) {
  __shared__ float states[kStepRows][kStepDepth + 1];
  __shared__ float weights[Cell::kRows * kStepUnits][kStepDepth + 1];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y), z = static_cast<int>(threadIdx.z);
  const int thread = (z * kStepRows + y) * kStepUnits + x, depth = cell.depth();
  for (int first = 0; first < depth; first += kStepDepth) {
#pragma unroll
    for (int i = thread; i < kStepRows * kStepDepth; i += kStepThreads) {
      const int row = i / kStepDepth, k = i % kStepDepth;
      const bool is_there = first_b + row < cell.batch && first + k < depth;
      states[row][k] = is_there ? access::widen(cell.exchanged(first_b + row, before)[cell.column(first + k)]) : 0.0f;
    }
#pragma unroll
    for (int i = thread; i < Cell::kRows * kStepUnits * kStepDepth; i += kStepThreads) {
      const int at = i % (kStepUnits * kStepDepth), row = i / (kStepUnits * kStepDepth);
      // Neighbouring threads take neighbouring weights.
      const int u = Cell::kNeighbours ? at / kStepDepth : at % kStepUnits;
      const int k = Cell::kNeighbours ? at % kStepDepth : at / kStepUnits;
      const bool is_there = first_unit + u < cell.hidden && first + k < depth;
      weights[row * kStepUnits + u][k] = is_there ? access::widen(*cell.weight(row, first_unit + u, first + k)) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int k = z * kSliceDepth; k < (z + 1) * kSliceDepth; ++k) {
#pragma unroll
      for (int row = 0; row < Cell::kRows; ++row) {
        sums[row] = fmaf(states[y][k], weights[row * kStepUnits + x][k], sums[row]);
      }
    }
    __syncthreads();
  }
}

// Block: kStepUnits x kStepRows x kStepSlices threads. carried: [batch][hidden].
template <class Cell>
__global__ void __launch_bounds__(kStepThreads) step_kernel(const Cell cell, int step, float* carried) {
  __shared__ float slices[kStepSlices][Cell::kRows][kStepRows][kStepUnits];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y), z = static_cast<int>(threadIdx.z);
  const int first_unit = static_cast<int>(blockIdx.x) * kStepUnits, first_b = static_cast<int>(blockIdx.y) * kStepRows;
  float sums[Cell::kRows] = {};
  if (step > 0) {
    add_slices(cell, cell.time(step - 1), first_unit, first_b, sums);
#pragma unroll
    for (int row = 0; row < Cell::kRows; ++row) slices[z][row][y][x] = sums[row];
    __syncthreads();
#pragma unroll
    for (int row = 0; row < Cell::kRows; ++row) {
      for (int slice = 1; slice < kStepSlices; ++slice) sums[row] += slices[slice][row][y][x];
    }
  }
  const int unit = first_unit + x, b = first_b + y;
  if (z > 0 || unit >= cell.hidden || b >= cell.batch) return;
  const std::int64_t at = static_cast<std::int64_t>(b) * cell.hidden + unit;
  float passed = step > 0 ? carried[at] : 0.0f;
  const int t = cell.time(step);
  const typename Cell::Loaded loaded = cell.load(b, t, unit);
  cell.save(cell.finish(cell.known(unit), loaded, sums, passed, b, t, unit), b, t, unit);
  carried[at] = passed;
}

template <class Cell>
void run_steps(cudaStream_t stream, const char* name, const Cell& cell, void* scratch) {
  const dim3 grid(grid_blocks(name, access::parts(cell.hidden, kStepUnits)),
                  grid_blocks(name, access::parts(cell.batch, kStepRows)));
  for (int step = 0; step < cell.steps; ++step) {
    step_kernel<<<grid, dim3(kStepUnits, kStepRows, kStepSlices), 0, stream>>>(cell, step,
                                                                               static_cast<float*>(scratch));
    check_launch(name);
  }
}

}  // namespace overtake::cuda::rnn_detail
