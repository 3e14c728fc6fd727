#pragma once
// Batched matrix product c[i0, i1] = alpha * op(a[i0, i1]) op(b[i0, i1]) over two batch dimensions.

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels {

// One operand: where its matrices lie. Strides count elements; batch stride 0 broadcasts an input.
struct MatmulOperand {
  bool transposed = false;      // inputs only: stored as the transpose of what the product takes
  std::int64_t row_stride = 0;  // between stored rows; inside a row elements are contiguous
  std::int64_t batch_stride[2] = {0, 0};
};

// op(a) is [m, k], op(b) is [k, n], c is [m, n], for each (i0, i1) in [batch[0], batch[1]].
struct MatmulShape {
  std::int64_t batch[2] = {1, 1};
  std::int64_t m = 0, n = 0, k = 0;
  float alpha = 1.0f;
  MatmulOperand a, b, c;
};

// Operands without gaps or broadcast: a [batch, m, k] (or [batch, k, m]), b [batch, k, n] (or [batch, n, k]), c [batch,
// m, n].
MatmulShape contiguous_matmul(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a,
                              bool trans_b);

// A unit is an (output matrix, block of 64 rows) pair; ranges of units are what parts compute. Neighbouring units of
// one matrix in one call share work; the bits of a unit do not depend on the range.
std::int64_t matmul_units(const MatmulShape& shape);

// Units [begin, end) of c. T is float or bf16; C is float or T.
template <class T, class C>
void matmul(const MatmulShape& shape, const T* a, const T* b, C* c, std::int64_t begin, std::int64_t end);

}  // namespace overtake::kernels
