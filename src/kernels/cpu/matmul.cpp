#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/cpu/gemm.h"

namespace overtake::kernels {
namespace {

constexpr std::int64_t kRows = 64;  // rows of c in one unit

std::int64_t row_blocks(const MatmulShape& s) { return (s.m + kRows - 1) / kRows; }

// Batch dimension d of the output: how many matrices it holds, and how many products are summed into each.
std::int64_t kept(const MatmulShape& s, int d) { return s.c.batch_stride[d] == 0 ? 1 : s.batch[d]; }
std::int64_t summed(const MatmulShape& s, int d) { return s.c.batch_stride[d] == 0 ? s.batch[d] : 1; }

std::int64_t batch_offset(const MatmulOperand& x, std::int64_t i0, std::int64_t i1) {
  return i0 * x.batch_stride[0] + i1 * x.batch_stride[1];
}

// Rows [first, first + rows) of op(a[i0, i1]) op(b[i0, i1]).
template <class T, class C>
void multiply_rows(const MatmulShape& s, const T* a, const T* b, std::int64_t i0, std::int64_t i1, std::int64_t first,
                   std::int64_t rows, float beta, C* c, std::int64_t ldc) {
  const T* a_rows = a + batch_offset(s.a, i0, i1) + first * (s.a.transposed ? 1 : s.a.row_stride);
  gemm(s.a.transposed, s.b.transposed, rows, s.n, s.k, s.alpha, a_rows, s.a.row_stride, b + batch_offset(s.b, i0, i1),
       s.b.row_stride, beta, c, ldc);
}

// The sum over the summed batch dimensions into c, which is float so that it is rounded nowhere in between.
template <class T>
void sum_rows(const MatmulShape& s, const T* a, const T* b, std::int64_t i0, std::int64_t i1, std::int64_t first,
              std::int64_t rows, float* c, std::int64_t ldc) {
  float beta = 0.0f;
  for (std::int64_t j0 = 0; j0 < summed(s, 0); ++j0) {
    for (std::int64_t j1 = 0; j1 < summed(s, 1); ++j1) {
      multiply_rows(s, a, b, i0 + j0, i1 + j1, first, rows, beta, c, ldc);
      beta = 1.0f;
    }
  }
}

// Rows of the output matrix (i0, i1).
template <class T, class C>
void output_rows(const MatmulShape& s, const T* a, const T* b, C* c, std::int64_t i0, std::int64_t i1,
                 std::int64_t first, std::int64_t rows) {
  C* out = c + batch_offset(s.c, i0, i1) + first * s.c.row_stride;
  if constexpr (std::is_same_v<C, float>) {
    sum_rows(s, a, b, i0, i1, first, rows, out, s.c.row_stride);
  } else if (summed(s, 0) * summed(s, 1) == 1) {
    multiply_rows(s, a, b, i0, i1, first, rows, 0.0f, out, s.c.row_stride);
  } else {
    std::vector<float> sum(static_cast<std::size_t>(rows * s.n));
    sum_rows(s, a, b, i0, i1, first, rows, sum.data(), s.n);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < s.n; ++j) {
        out[i * s.c.row_stride + j] = from_float<C>(sum[static_cast<std::size_t>(i * s.n + j)]);
      }
    }
  }
}

MatmulOperand flipped(MatmulOperand x) {
  x.transposed = !x.transposed;
  return x;
}

// A gradient is the product of dc and the other input, in the order that gives it as the input is stored.
struct Gradient {
  MatmulShape shape;
  bool dc_first = false;
};

Gradient a_gradient(const MatmulShape& f) {
  Gradient g{f, !f.a.transposed};
  g.shape.c = f.a;
  g.shape.c.transposed = false;
  if (f.a.transposed) {  // da [k, m] = op(b) [k, n] dc^T [n, m]
    g.shape.m = f.k, g.shape.n = f.m, g.shape.k = f.n;
    g.shape.a = f.b, g.shape.b = flipped(f.c);
  } else {  // da [m, k] = dc [m, n] op(b)^T [n, k]
    g.shape.m = f.m, g.shape.n = f.k, g.shape.k = f.n;
    g.shape.a = f.c, g.shape.b = flipped(f.b);
  }
  return g;
}

Gradient b_gradient(const MatmulShape& f) {
  Gradient g{f, f.b.transposed};
  g.shape.c = f.b;
  g.shape.c.transposed = false;
  if (f.b.transposed) {  // db [n, k] = dc^T [n, m] op(a) [m, k]
    g.shape.m = f.n, g.shape.n = f.k, g.shape.k = f.m;
    g.shape.a = flipped(f.c), g.shape.b = f.a;
  } else {  // db [k, n] = op(a)^T [k, m] dc [m, n]
    g.shape.m = f.k, g.shape.n = f.n, g.shape.k = f.m;
    g.shape.a = flipped(f.a), g.shape.b = f.c;
  }
  return g;
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

std::int64_t matmul_units(const MatmulShape& s) { return kept(s, 0) * kept(s, 1) * row_blocks(s); }

template <class T, class C>
void matmul(const MatmulShape& s, const T* a, const T* b, C* c, std::int64_t begin, std::int64_t end) {
  const std::int64_t blocks = row_blocks(s);
  for (std::int64_t unit = begin; unit < end;) {
    const std::int64_t matrix = unit / blocks, block = unit % blocks;
    const std::int64_t last = std::min(blocks, block + end - unit);  // the units of this matrix in one go
    const std::int64_t first_row = block * kRows, end_row = std::min(last * kRows, s.m);
    output_rows(s, a, b, c, matrix / kept(s, 1), matrix % kept(s, 1), first_row, end_row - first_row);
    unit += last - block;
  }
}

std::int64_t matmul_a_grad_units(const MatmulShape& forward) { return matmul_units(a_gradient(forward).shape); }

template <class T, class C>
void matmul_a_grad(const MatmulShape& forward, const T* dc, const T* b, C* da, std::int64_t begin, std::int64_t end) {
  const Gradient g = a_gradient(forward);
  matmul(g.shape, g.dc_first ? dc : b, g.dc_first ? b : dc, da, begin, end);
}

std::int64_t matmul_b_grad_units(const MatmulShape& forward) { return matmul_units(b_gradient(forward).shape); }

template <class T, class C>
void matmul_b_grad(const MatmulShape& forward, const T* dc, const T* a, C* db, std::int64_t begin, std::int64_t end) {
  const Gradient g = b_gradient(forward);
  matmul(g.shape, g.dc_first ? dc : a, g.dc_first ? a : dc, db, begin, end);
}

template void matmul(const MatmulShape&, const float*, const float*, float*, std::int64_t, std::int64_t);
template void matmul(const MatmulShape&, const bf16*, const bf16*, float*, std::int64_t, std::int64_t);
template void matmul(const MatmulShape&, const bf16*, const bf16*, bf16*, std::int64_t, std::int64_t);
template void matmul_a_grad(const MatmulShape&, const float*, const float*, float*, std::int64_t, std::int64_t);
template void matmul_a_grad(const MatmulShape&, const bf16*, const bf16*, float*, std::int64_t, std::int64_t);
template void matmul_a_grad(const MatmulShape&, const bf16*, const bf16*, bf16*, std::int64_t, std::int64_t);
template void matmul_b_grad(const MatmulShape&, const float*, const float*, float*, std::int64_t, std::int64_t);
template void matmul_b_grad(const MatmulShape&, const bf16*, const bf16*, float*, std::int64_t, std::int64_t);
template void matmul_b_grad(const MatmulShape&, const bf16*, const bf16*, bf16*, std::int64_t, std::int64_t);

}  // namespace overtake::kernels
