#pragma once
// Where the three matrices of a product lie in memory.

#include <cstdint>
#include <vector>

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

}  // namespace overtake
