#include "train/device_ranks.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "exec/transfer_calls.h"
#include "plan/divide/transfer_turns.h"

namespace overtake {
namespace {

// Half of a device's thread blocks for sums, half for messages to and from others. The same for all devices: both ends
// of a channel must take as many.
int blocks_of(const Channel& channel, const std::vector<Channel>& all) {
  std::map<std::int64_t, int> count;  // by device
  int most = 1;
  for (const Channel& other : all)
    if (other.use == channel.use)
      for (const std::int64_t device : other.devices) most = std::max(most, ++count[device]);
  return std::max(1, kMostNcclBlocks / 2 / most);
}

void check_order(const Detail& whole) {
  const std::uint32_t devices = whole.devices;
  std::vector<Plan> parts;
  for (std::uint32_t d = 0; d < devices; ++d) parts.push_back(part_of(whole, d).plan);
  for (const Portion portion : {Portion::step_and_delayed, Portion::step, Portion::delayed}) {
    std::vector<std::vector<TransferCall>> calls;
    for (std::uint32_t d = 0; d < devices; ++d) calls.push_back(transfer_calls(parts[d], d, portion));
    check_calls(calls);
  }
}

}  // namespace

std::string gpu_of_rank(const std::string& device, int rank, int local_rank, const CudaDescription& cuda,
                        bool is_nccl_there) {
  if (!cuda.is_built_in)
    fail_user(
        "`device {}`: this build has no CUDA; `overtake devices` lists what there is, CMake's preset cuda builds it in",
        device);
  if (!is_nccl_there)
    fail_user(
        "`device {}`: this build has no NCCL, by which processes with a GPU each talk; install it (libnccl-dev) and "
        "configure anew, or use one process and `virtual_gpus`",
        device);
  const std::size_t gpus = cuda.gpus.size();
  if (gpus == 0) fail_user("`device {}`: rank {}'s host: {}; use `device cpu`", device, rank, cuda.note);
  if (device != "cuda") return device;
  if (static_cast<std::size_t>(local_rank) >= gpus)
    fail_user(
        "`device cuda`: rank {} is process number {} on its host, which has {} GPU{}; start at most {} there, or one "
        "process with `virtual_gpus`, which shares a GPU among several devices",
        rank, local_rank + 1, gpus, gpus == 1 ? "" : "s", gpus);
  return fmt::format("cuda:{}", local_rank);
}

Detail with_checked_turns(Detail whole) {
  whole.plan = with_transfer_turns(std::move(whole.plan));
  check_order(whole);
  return whole;
}

void connect_channels(const std::vector<Channel>& channels, int rank, const MakeDeviceGroup& make,
                      DeviceGroups& groups) {
  // All ranks go through the channels in the same order, so none waits for one that waits for it.
  for (const Channel& channel : channels) {
    const auto own = std::ranges::find(channel.devices, rank);
    if (own == channel.devices.end() || groups.by_channel.contains(to_string(channel))) continue;
    groups.by_channel[to_string(channel)] =
        make(to_string(channel), static_cast<int>(own - channel.devices.begin()),
             static_cast<int>(channel.devices.size()), blocks_of(channel, channels));
  }
}

}  // namespace overtake
