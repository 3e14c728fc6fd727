#pragma once
// Convolutions as the products that their kernels make of them.

#include "machine/kernel_times/product.h"
#include "overtake/graph.h"

namespace overtake {

// The arithmetic alone; `rate` is that of its products.
ProductTime convolution_time(const Graph& graph, const Task& task, MatrixRate rate, const DeviceType& device,
                             const KernelTable& table);

}  // namespace overtake
