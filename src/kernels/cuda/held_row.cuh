#pragma once
// Rows that are read once and used several times: a warp or a block holds a row in its registers. Rows too long for
// that are read again (from the cache, mostly) on each use.

#include <cstdint>

#include "kernels/cuda/values.cuh"

namespace overtake::cuda {

// Four rows a block where a warp holds a row: enough warps a block for full occupancy, small blocks for an even finish.
inline constexpr int kWarpRowThreads = 128;
// Threads of a block that holds one row: eight packs each reach rows of 32 KiB.
inline constexpr int kBlockRowThreads = 256;

// How a row is spread: G threads, each holding up to `Steps` packs of V elements; pack s of a lane is at column
// (s * G + lane) * V. Steps == 0: not held.
template <int v, int g, int steps>
struct RowPlan {
  static constexpr int V = v, G = g, Steps = steps;
  static constexpr int threads = g == 32 ? kWarpRowThreads : g;
  static constexpr int rows_per_block = threads / g;

  __device__ static std::int64_t row() {
    return static_cast<std::int64_t>(blockIdx.x) * rows_per_block + static_cast<int>(threadIdx.x) / g;
  }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % g; }

  // Calls f(step, column) for this thread's packs of a row.
  template <class F>
  __device__ static void for_each_pack(int width, const F& f) {
    if constexpr (steps > 0) {
#pragma unroll
      for (int s = 0; s < steps; ++s) {
        const int column = (s * g + lane()) * v;
        if (column < width) f(s, column);
      }
    } else {
#pragma unroll 4
      for (int column = lane() * v; column < width; column += g * v) f(0, column);
    }
  }
};

template <class T, class Plan, int steps = Plan::Steps>
class HeldRow {
 public:
  __device__ HeldRow(const T* row, int width) {
    Plan::for_each_pack(width, [&](int s, int column) { packs_[s] = load_packed<Plan::V>(row + column); });
  }
  __device__ void get(int step, int, float (&values)[Plan::V]) const { unpack(packs_[step], values); }

 private:
  Packed<T, Plan::V> packs_[steps];
};

template <class T, class Plan>
class HeldRow<T, Plan, 0> {
 public:
  __device__ HeldRow(const T* row, int) : row_(row) {}
  __device__ void get(int, int column, float (&values)[Plan::V]) const {
    unpack(load_packed<Plan::V>(row_ + column), values);
  }

 private:
  const T* row_;
};

// Calls body(RowPlan) with the plan for rows of `width` elements of T.
template <class T, class Body>
void with_row_plan(std::int64_t width, const Body& body) {
  with_vector_width<T>(width, [&](auto vector) {
    constexpr int V = vector, G = kBlockRowThreads;
    const std::int64_t packs = (width + V - 1) / V;
    if (packs <= 32 * 2) return body(RowPlan<V, 32, 2>{});
    if (packs <= 32 * 4) return body(RowPlan<V, 32, 4>{});
    if (packs <= 32 * 8) return body(RowPlan<V, 32, 8>{});
    if (packs <= G * 2) return body(RowPlan<V, G, 2>{});
    if (packs <= G * 4) return body(RowPlan<V, G, 4>{});
    if (packs <= G * 8) return body(RowPlan<V, G, 8>{});
    body(RowPlan<V, G, 0>{});
  });
}

}  // namespace overtake::cuda
