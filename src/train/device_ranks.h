#pragma once
// Processes that train one model with a GPU each: which GPU a process takes, and its communicators.

#include <functional>
#include <memory>
#include <string>

#include "comm/nccl/device_groups.h"
#include "exec/cuda/description.h"
#include "plan/divide/detail.h"

namespace overtake {

// "cuda:2" for the process `local_rank` of those on its host, given `device`: the GPU of that number, unless the user
// named one. User errors: no CUDA or no NCCL in this build, no GPUs, fewer than processes.
std::string gpu_of_rank(const std::string& device, int rank, int local_rank, const CudaDescription& cuda,
                        bool is_nccl_there);

// Connects the members of a channel, of which this process is `rank`.
using MakeDeviceGroup =
    std::function<std::shared_ptr<NcclGroup>(const std::string& channel, int rank, int size, int most_blocks)>;

// Makes a plan over all devices one that GPUs can run: gives its transfers turns, checks that what all devices then
// call fits together, and connects those channels of rank `rank` that are not connected yet. All ranks call it for the
// same plans, in the same order.
void connect_devices(Detail& whole, int rank, const MakeDeviceGroup& make, DeviceGroups& groups);

}  // namespace overtake
