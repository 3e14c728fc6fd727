#pragma once
// Where the matrices of a matmul lie in memory: what passes ask before they make one, and kernels are given.

#include "overtake/graph.h"
#include "overtake/matmul_view.h"

namespace overtake {

// Of a matmul with these attributes on buffers of these shapes, all row-major.
MatmulView matmul_view(const Attrs& attrs, const Shape& a, const Shape& b, const Shape& c);

}  // namespace overtake
