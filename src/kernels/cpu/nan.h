#pragma once
// Search for numbers that are not finite. T is float or bf16.

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels {

// The index of the first NaN or infinity of x [count] in the given blocks of 1024 elements (block.h), or -1.
template <class T>
std::int64_t first_non_finite(const T* x, std::int64_t count, std::int64_t block_begin, std::int64_t block_end);

}  // namespace overtake::kernels
