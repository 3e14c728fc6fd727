#pragma once
// What tasks take on a device that is only described, by what its kernels do: products and convolutions in tiles over
// the SMs, norms in passes over memory, attention in one kernel, and a fixed cost of each kernel.

#include <vector>

#include "machine/kernel_times/kernel_factors.h"
#include "overtake/cluster.h"
#include "overtake/graph.h"
#include "overtake/task_cost.h"

namespace overtake {

struct KernelOptions {
  bool tf32 = false;        // float32 products at the tf32 rate
  KernelFactors factors{};  // by which measured kernels take longer than the device's table says
};

// Per task of a step, by the table of the device's generation (kernel_table.h).
std::vector<TaskCost> kernel_times(const Graph& step, const DeviceType& device, const KernelOptions& options = {});

}  // namespace overtake
