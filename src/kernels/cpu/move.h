#pragma once
// Kernels that move numbers without changing them (but for the rounding of a cast). T is float, bf16 or, except for
// fill and cast, std::int32_t.

#include <array>
#include <cstdint>
#include <span>

#include "base/bf16.h"

namespace overtake::kernels {

// Concat, slice and its gradient see tensors as [outer, axis, inner] and work on the rows [axis, inner] of the
// destination, long rows cut in blocks of 16384 elements. Unit count, `row` being axis * inner of the destination:
std::int64_t row_move_units(std::int64_t outer, std::int64_t row);

// out [outer, sum of extents, inner] = in[i] [outer, extents[i], inner] side by side. Unit: see row_move_units.
template <class T>
void concat(std::span<const T* const> in, std::span<const std::int64_t> extents, std::int64_t inner, T* out,
            std::int64_t begin, std::int64_t end);

// y [outer, extent, inner] = x [outer, axis, inner] from `offset` on. Also the gradient of concat, for one input.
template <class T>
void slice(const T* x, T* y, std::int64_t axis, std::int64_t offset, std::int64_t extent, std::int64_t inner,
           std::int64_t begin, std::int64_t end);

// dx [outer, axis, inner] = dy [outer, extent, inner] at `offset`, 0 elsewhere.
template <class T>
void slice_backward(const T* dy, T* dx, std::int64_t axis, std::int64_t offset, std::int64_t extent, std::int64_t inner,
                    std::int64_t begin, std::int64_t end);

// y = x with dims permuted: dim i of y is dim permutation[i] of x; x and y contiguous, rank <= 6. The gradient is the
// same with the inverse permutation. The plan drops dims of extent 1 and joins neighbours that stay neighbours.
struct PermutePlan {
  std::int64_t columns;        // the last dim of y
  std::int64_t x_column_step;  // its stride in x; if 1, rows of y are copies of rows of x
  std::int64_t tile_rows;      // else the dim that is contiguous in x, which makes a plane to transpose with the last
  std::int64_t y_row_step;     // and its stride in y
  int rank;                    // of the remaining dims, in y's order
  std::array<std::int64_t, 6> dims;
  std::array<std::int64_t, 6> x_strides, y_strides;
  std::int64_t blocks;  // a row is cut in blocks of 16384 columns, a plane in blocks of 64 tile rows
  std::int64_t units;   // unit count of permute
};

PermutePlan make_permute_plan(std::span<const std::int64_t> x_dims, std::span<const int> permutation);

template <class T>
void permute(const PermutePlan& plan, const T* x, T* y, std::int64_t begin, std::int64_t end);

// out [count] = value. Unit: block of 1024 elements.
template <class T>
void fill(T* out, float value, std::int64_t count, std::int64_t block_begin, std::int64_t block_end);

// y [count] = x [count], rounded to nearest even when narrowing. Unit: block of 1024 elements. From, To in {float,
// bf16}.
template <class From, class To>
void cast(const From* x, To* y, std::int64_t count, std::int64_t block_begin, std::int64_t block_end);

}  // namespace overtake::kernels
