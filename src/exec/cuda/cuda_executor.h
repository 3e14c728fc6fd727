#pragma once

#include "exec/cuda/device.h"

namespace overtake {

// See make_null_executor. The device must outlive the executor and its memory.
std::unique_ptr<Executor> make_cuda_executor(std::vector<Plan> plans, CudaDevice& device,
                                             std::shared_ptr<PersistentMemory> memory);

}  // namespace overtake
