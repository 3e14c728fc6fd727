#pragma once
// Kernels that move numbers without changing them (but for the rounding of a cast) on the GPU: kernels/cpu/move.h. T is
// float, bf16 or, except for fill and cast, std::int32_t. Calls only enqueue; arrays start at 16-byte boundaries.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/bf16.h"
#include "kernels/cpu/move.h"

namespace overtake::cuda {

using kernels::PermutePlan;

// Elements from one of the `outer` rows to the next, of the whole and of each part; 0, or no parts: as many as it has.
struct ConcatPitches {
  std::int64_t whole = 0;
  std::vector<std::int64_t> parts = {};
};

// out [outer, sum of extents, inner] = in[i] [outer, extents[i], inner] side by side, where in[i] is not null.
template <class T>
void concat(cudaStream_t stream, std::span<const T* const> in, std::span<const std::int64_t> extents,
            std::int64_t inner, T* out, std::int64_t outer, const ConcatPitches& pitches = {});

// The other way: out[i], where it is not null, [outer, extents[i], inner] from x [outer, sum of extents, inner]. Also
// the gradient of concat.
template <class T>
void split(cudaStream_t stream, const T* x, std::span<T* const> out, std::span<const std::int64_t> extents,
           std::int64_t inner, std::int64_t outer, const ConcatPitches& pitches = {});

// y [outer, extent, inner] = x [outer, axis, inner] from `offset` on.
template <class T>
void slice(cudaStream_t stream, const T* x, T* y, std::int64_t axis, std::int64_t offset, std::int64_t extent,
           std::int64_t inner, std::int64_t outer);

// dx [outer, axis, inner] = dy [outer, extent, inner] at `offset`, 0 elsewhere.
template <class T>
void slice_backward(cudaStream_t stream, const T* dy, T* dx, std::int64_t axis, std::int64_t offset,
                    std::int64_t extent, std::int64_t inner, std::int64_t outer);

// y = x with dims permuted, as kernels::make_permute_plan says.
template <class T>
void permute(cudaStream_t stream, const PermutePlan& plan, const T* x, T* y);

// out [count] = value.
template <class T>
void fill(cudaStream_t stream, T* out, float value, std::int64_t count);

// y [count] = x [count], rounded to nearest even when narrowing. From, To in {float, bf16}.
template <class From, class To>
void cast(cudaStream_t stream, const From* x, To* y, std::int64_t count);

// y = x, any `bytes` of device memory.
void copy(cudaStream_t stream, const void* x, void* y, std::int64_t bytes);

}  // namespace overtake::cuda
