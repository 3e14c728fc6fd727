#pragma once
// Softmax over the middle dim of [outer, axis, inner]. T is float or bf16.

#include <cstdint>

#include "base/bf16.h"

namespace overtake::kernels {

// Unit count: a unit is one row [axis] if inner == 1, else up to 64 neighbouring columns of one [axis, inner] plane.
std::int64_t softmax_units(std::int64_t outer, std::int64_t inner);

// y = e^(x - max) / sum of the same; a row whose entries are all -inf becomes NaN. May be in place.
template <class T>
void softmax_forward(const T* x, T* y, std::int64_t axis, std::int64_t inner, std::int64_t begin, std::int64_t end);

// dx = y (dy - sum(y dy)). May be in place over y or dy.
template <class T>
void softmax_backward(const T* y, const T* dy, T* dx, std::int64_t axis, std::int64_t inner, std::int64_t begin,
                      std::int64_t end);

}  // namespace overtake::kernels
