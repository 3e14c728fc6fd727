#pragma once
// Reductions over the threads that share a row: a warp or a whole block. The order is fixed and every thread gets the
// same bits.

namespace overtake::cuda {

__device__ inline float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
__device__ inline double shuffle_xor(double value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
__device__ inline int shuffle_xor(int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
__device__ inline float2 shuffle_xor(float2 value, int mask) {
  return {shuffle_xor(value.x, mask), shuffle_xor(value.y, mask)};
}
__device__ inline double2 shuffle_xor(double2 value, int mask) {
  return {shuffle_xor(value.x, mask), shuffle_xor(value.y, mask)};
}

// combine must be commutative to the last bit. G: 32, or the size of the block, whose threads must all come here.
template <int G, class Value, class Combine>
__device__ inline Value group_reduce(Value value, const Combine& combine) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
  if constexpr (G > 32) {
    __shared__ Value warps[G / 32];
    __syncthreads();  // an earlier reduction may still be reading
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[0];
#pragma unroll
    for (int i = 1; i < G / 32; ++i) value = combine(value, warps[i]);
  }
  return value;
}

template <int G>
__device__ inline float group_sum(float value) {
  return group_reduce<G>(value, [](float a, float b) { return a + b; });
}

template <int G>
__device__ inline double group_sum(double value) {
  return group_reduce<G>(value, [](double a, double b) { return a + b; });
}

template <int G>
__device__ inline float2 group_sum(float2 value) {
  return group_reduce<G>(value, [](float2 a, float2 b) { return float2{a.x + b.x, a.y + b.y}; });
}

template <int G>
__device__ inline double2 group_sum(double2 value) {
  return group_reduce<G>(value, [](double2 a, double2 b) { return double2{a.x + b.x, a.y + b.y}; });
}

}  // namespace overtake::cuda
