#pragma once
// numpy's broadcasting: shapes are aligned at their last dimension; a missing or 1 dimension stretches.

#include "ops/op.h"

namespace overtake {

Shape broadcast(const Shape& a, const Shape& b);  // ShapeError if they do not fit

// The axes of `to` along which an expand with these attributes stretches `from`: those over which its gradient is
// summed.
std::vector<std::int64_t> stretched_axes(const Attrs& expand, const Shape& from, const Shape& to);

}  // namespace overtake
