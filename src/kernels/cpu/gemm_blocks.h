#pragma once
// The blocked loops behind gemm, with a hook for whoever wants to finish c while it is in cache. Internal to the matrix
// kernels.

#include <cstdint>
#include <functional>

#include "base/bf16.h"

namespace overtake::kernels::gemm_detail {

template <class T>
struct Factors {
  bool trans_a = false, trans_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  float alpha = 1.0f;
  const T* a = nullptr;
  std::int64_t lda = 0;
  const T* b = nullptr;  // null where packed_b is given
  std::int64_t ldb = 0;
  const void* packed_b = nullptr;  // by pack_b, for packed_k >= k and packed_n >= n; its upper left part is used
  std::int64_t packed_k = 0, packed_n = 0;
};

// Called once for every part of c when its sums are complete: rows [row, row + rows), columns [col, col + cols); `part`
// points to its first element, rows ld apart. Parts are whole rows by fixed blocks of columns, in no promised order.
using Finish = std::function<void(float* part, std::int64_t ld, std::int64_t row, std::int64_t rows, std::int64_t col,
                                  std::int64_t cols)>;

// c[m, n] = alpha * op(a) op(b), or += where `accumulate`; then `finish` (may be empty).
template <class T>
void multiply_blocks(const Factors<T>& factors, bool accumulate, float* c, std::int64_t ldc, const Finish& finish);

// The same without a c, b not packed: the parts that `finish` sees lie in a buffer of the thread and are forgotten
// afterwards.
template <class T>
void multiply_blocks_to(const Factors<T>& factors, const Finish& finish);

}  // namespace overtake::kernels::gemm_detail
