#pragma once
// numpy's broadcasting: shapes are aligned at their last dimension; a missing or 1 dimension stretches.

#include "ops/op.h"

namespace overtake {

Shape broadcast(const Shape& a, const Shape& b);  // ShapeError if they do not fit

}  // namespace overtake
