#include "kernels/cpu/matmul.h"

#include <algorithm>

#include "kernels/cpu/gemm.h"

namespace overtake::kernels {
namespace {

constexpr std::int64_t kRows = 64;  // rows of c in one unit

std::int64_t row_blocks(const MatmulShape& s) { return (s.m + kRows - 1) / kRows; }

std::int64_t batch_offset(const MatmulOperand& x, std::int64_t i0, std::int64_t i1) {
  return i0 * x.batch_stride[0] + i1 * x.batch_stride[1];
}

// Rows [first, first + rows) of the output matrix (i0, i1).
template <class T, class C>
void output_rows(const MatmulShape& s, const T* a, const T* b, C* c, std::int64_t i0, std::int64_t i1,
                 std::int64_t first, std::int64_t rows) {
  const T* a_rows = a + batch_offset(s.a, i0, i1) + first * (s.a.transposed ? 1 : s.a.row_stride);
  gemm(s.a.transposed, s.b.transposed, rows, s.n, s.k, s.alpha, a_rows, s.a.row_stride, b + batch_offset(s.b, i0, i1),
       s.b.row_stride, 0.0f, c + batch_offset(s.c, i0, i1) + first * s.c.row_stride, s.c.row_stride);
}

}  // namespace

MatmulShape contiguous_matmul(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a,
                              bool trans_b) {
  MatmulShape s;
  s.batch[1] = batch;
  s.m = m, s.n = n, s.k = k;
  s.a = {trans_a, trans_a ? m : k, {batch * m * k, m * k}};
  s.b = {trans_b, trans_b ? k : n, {batch * k * n, k * n}};
  s.c = {false, n, {batch * m * n, m * n}};
  return s;
}

std::int64_t matmul_units(const MatmulShape& s) { return s.batch[0] * s.batch[1] * row_blocks(s); }

template <class T, class C>
void matmul(const MatmulShape& s, const T* a, const T* b, C* c, std::int64_t begin, std::int64_t end) {
  const std::int64_t blocks = row_blocks(s);
  for (std::int64_t unit = begin; unit < end;) {
    const std::int64_t matrix = unit / blocks, block = unit % blocks;
    const std::int64_t last = std::min(blocks, block + end - unit);  // the units of this matrix in one go
    const std::int64_t first_row = block * kRows, end_row = std::min(last * kRows, s.m);
    output_rows(s, a, b, c, matrix / s.batch[1], matrix % s.batch[1], first_row, end_row - first_row);
    unit += last - block;
  }
}

template void matmul(const MatmulShape&, const float*, const float*, float*, std::int64_t, std::int64_t);
template void matmul(const MatmulShape&, const bf16*, const bf16*, float*, std::int64_t, std::int64_t);
template void matmul(const MatmulShape&, const bf16*, const bf16*, bf16*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
