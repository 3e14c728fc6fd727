#pragma once
// The communicators of one rank whose device is a GPU, and how they are made. In any build; without NCCL there are
// none.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "comm/store.h"

namespace overtake {

class NcclGroup;  // comm/nccl/nccl_group.h, in builds with CUDA

struct NcclOptions {
  int rank = 0, size = 1;
  std::string name = "nccl";  // under which rank 0 puts the group's id into the store; each group has its own
  std::chrono::milliseconds time_out{60'000};
  int most_blocks = 0;  // thread blocks of a kernel, each of which holds an SM while it waits; 0: NCCL's own choice
};

// Whether this build has NCCL.
bool has_nccl();
// The library and whether switches may add (NVLink SHARP), as far as NCCL tells, in one line for people.
std::string describe_nccl(int ranks);

// On the current GPU. Returns when all ranks are connected. UserError when this build has no NCCL or the numbers of
// ranks do not fit.
std::shared_ptr<NcclGroup> make_nccl_group(Store& store, const NcclOptions& options);

// Of all communicators of a GPU together, at most: kernels that count on SMs of their own must leave so many free.
inline constexpr int kMostNcclBlocks = 32;

struct DeviceGroups {
  std::map<std::string, std::shared_ptr<NcclGroup>> by_channel;  // names of plan/divide/transfer_turns.h
};

}  // namespace overtake
