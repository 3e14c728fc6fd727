#pragma once
// Processes that train one model with a GPU each: which GPU a process takes, and its communicators.

#include <functional>
#include <memory>
#include <string>

#include "comm/nccl/device_groups.h"
#include "exec/cuda/description.h"
#include "plan/divide/detail.h"
#include "plan/divide/transfer_turns.h"

namespace overtake {

// "cuda:2" for the process `local_rank` of those on its host, given `device`: the GPU of that number, unless the user
// named one. User errors: no CUDA or no NCCL in this build, no GPUs, fewer than processes.
std::string gpu_of_rank(const std::string& device, int rank, int local_rank, const CudaDescription& cuda,
                        bool is_nccl_there);

// Connects the members of a channel, of which this process is `rank`.
using MakeDeviceGroup =
    std::function<std::shared_ptr<NcclGroup>(const std::string& channel, int rank, int size, int most_blocks)>;

// A plan over all devices as GPUs can run it: its transfers have turns, and what all devices then call fits together.
Detail with_checked_turns(Detail whole);

// Connects those of the channels that rank `rank` is a member of and that are not connected yet. All ranks call it for
// the same channels, in the same order.
void connect_channels(const std::vector<Channel>& channels, int rank, const MakeDeviceGroup& make,
                      DeviceGroups& groups);

}  // namespace overtake
