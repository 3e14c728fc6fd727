#pragma once

#include "exec/cuda/device.h"

namespace overtake {

// All plans must be of one graph and have memory placed. The device must outlive the executor.
std::unique_ptr<Executor> make_cuda_executor(std::vector<Plan> plans, CudaDevice& device);

}  // namespace overtake
