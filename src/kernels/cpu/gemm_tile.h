#pragma once
// The innermost loops of gemm: one tile of c, up to kMaxRows rows by kPanel columns, over one block of k.
// Internal to gemm.

#include <cstdint>

#include "kernels/cpu/gemm_pack.h"

namespace overtake::kernels::gemm_detail {

// c[rows, cols] = alpha * a b, or += where `accumulate`. a is [words][rows], b is [words][kPanel], both packed; words
// of T = bf16 hold what kElementsPerWord says. 1 <= rows <= kMaxRows, 1 <= cols <= kPanel.
template <class T>
void multiply_tile(std::int64_t rows, std::int64_t cols, std::int64_t words, const Word* a, const Word* b, float alpha,
                   bool accumulate, float* c, std::int64_t ldc);

}  // namespace overtake::kernels::gemm_detail
