#pragma once
// Dropout. The mask is a pure function of (key, step, element index), so it is never stored. T is float or bf16.

#include <cstdint>

#include "base/bf16.h"
#include "base/philox.h"

namespace overtake::kernels {

// Whether element i survives: word i % 4 of counter (i / 4, step), as a number in [0, 1), is at least p.
inline bool dropout_keeps(PhiloxKey key, std::uint64_t step, std::uint64_t i, float p) {
  return unit_float(philox(key, i / 4, step)[i % 4]) >= p;
}

// y = x / (1 - p) where the element survives, else 0; x, y [count], 0 <= p < 1. The backward kernel is the same one
// with dy for x and dx for y. Unit: block of 1024 elements (block.h). May be in place.
template <class T>
void dropout(PhiloxKey key, std::uint64_t step, float p, const T* x, T* y, std::int64_t count, std::int64_t block_begin,
             std::int64_t block_end);

}  // namespace overtake::kernels
