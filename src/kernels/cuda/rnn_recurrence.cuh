#pragma once
// Runs a recurrence: every step multiplies what the step before wrote with weights and finishes each hidden unit of
// each batch row by itself. For .cu files only.
//
// A Cell is one recurrence, forward or backward. With T = Cell::Type:
//   kRows                              sums a unit takes from the product
//   kNeighbours                        whether a row of weights is contiguous along the product's depth
//   batch, steps, hidden               the shape
//   int depth()                        of the product
//   int time(step)                     the time step t of a step
//   const T* exchanged(b, t)           what step t of batch row b wrote for all to read: a row of values
//   int column(k)                      which of them the k-th factor is
//   const T* weight(row, unit, k)      its weight for the given sum of a unit
//   Known known(unit)                  what is known per unit
//   Loaded load(b, t, unit)            what a step reads of its own
//   Saved finish(known, loaded, sums, carried, b, t, unit)
//                                      writes what all read in the next step; `carried` goes along, 0 at first
//   void save(saved, b, t, unit)       writes the rest, for which no other block waits

#include <cstdint>
#include <type_traits>

#include "base/bf16.h"
#include "kernels/cpu/lstm.h"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/rnn_persistent.cuh"
#include "kernels/cuda/rnn_steps.cuh"

namespace overtake::cuda::rnn_detail {

template <class Cell>
void run_recurrence(cudaStream_t stream, const char* name, const Cell& cell, void* scratch, int multiprocessors) {
  if (cell.batch == 0 || cell.steps == 0) return;
  if constexpr (std::is_same_v<typename Cell::Type, bf16>) {
    const auto plan = persistent_plan(cell.batch, cell.hidden, cell.depth(), Cell::kRows, multiprocessors);
    if (plan) return run_persistent(stream, name, cell, *plan, scratch);
  }
  run_steps(stream, name, cell, scratch);
}

__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// b_ih + b_hh, either null for zeros.
__device__ inline float both_biases(const float* b_ih, const float* b_hh, int at) {
  return (b_ih != nullptr ? b_ih[at] : 0.0f) + (b_hh != nullptr ? b_hh[at] : 0.0f);
}

// The shape as cells have it.
struct CellShape {
  int batch, steps, hidden;

  explicit CellShape(const kernels::RnnShape& s)
      : batch(static_cast<int>(s.batch)), steps(static_cast<int>(s.steps)), hidden(static_cast<int>(s.hidden)) {}

  // The number of a row (b, t).
  __device__ std::int64_t row(int b, int t) const { return static_cast<std::int64_t>(b) * steps + t; }
};

}  // namespace overtake::cuda::rnn_detail
