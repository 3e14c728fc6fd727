#pragma once
// Sums of a row whose error does not grow with its length.

#include <cstdint>

#include "kernels/cpu/block.h"

namespace overtake::kernels {

// term(0) + ... + term(size - 1): blocks of 1024 (block.h) in float, in vector lanes, and the blocks in double. The
// order depends on nothing but size. `term` must capture by value to be vectorised.
template <class Term>
inline double blocked_sum(std::int64_t size, Term term) {
  double sum = 0;
  for (std::int64_t first = 0; first < size; first += kBlock) {
    const std::int64_t last = std::min(size, first + kBlock);
    float block = 0;
#pragma omp simd reduction(+ : block)
    for (std::int64_t i = first; i < last; ++i) block += term(i);
    sum += static_cast<double>(block);
  }
  return sum;
}

}  // namespace overtake::kernels
