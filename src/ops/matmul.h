#pragma once
// Where the matrices of a matmul lie in memory: what passes ask before they make one, and kernels are given.

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace overtake {

// c[i...] = op(a[i...])[m, k] op(b[i...])[k, n] for every i of the batch.
struct MatmulView {
  struct Operand {
    bool is_transposed = false;               // stored as [k, m] or [n, k]; never c
    std::int64_t row_stride = 0;              // between stored rows, whose elements are neighbours
    std::vector<std::int64_t> batch_strides;  // one per dimension of the batch
  };
  std::int64_t m = 1, n = 1, k = 1;
  // Without dimensions of extent 1; neighbours that all three walk through as one are one.
  std::vector<std::int64_t> batch;
  Operand a, b, c;
};

// Of a matmul with these attributes on buffers of these shapes, all row-major.
MatmulView matmul_view(const Attrs& attrs, const Shape& a, const Shape& b, const Shape& c);

}  // namespace overtake
