#pragma once
// The other processes, with a GPU each, that a plan's transfers go to and come from; and waiting for this GPU, which
// may wait for them.

#include <cuda_runtime_api.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "comm/nccl/device_groups.h"
#include "comm/rank_groups.h"
#include "plan/divide/transfer_turns.h"

namespace overtake {

class GpuRanks {
 public:
  // Both are null where this process has all devices of a plan.
  GpuRanks(std::shared_ptr<RankGroups> ranks, std::shared_ptr<DeviceGroups> groups)
      : ranks_(std::move(ranks)), groups_(std::move(groups)) {}

  bool are_there() const { return ranks_ != nullptr && groups_ != nullptr; }
  int own_rank() const { return ranks_->world->rank(); }
  // A channel's communicator; it must be connected.
  NcclGroup& group(const Channel& channel) const;
  // A number for each channel, the same for all programs.
  std::uint16_t index_of(const Channel& channel);

  // Until all that is on the stream, or was before the event, has ended; gives what CUDA says of it. With other ranks
  // it looks after them meanwhile: one that is lost, one that has left, an error of NCCL, or a GPU that takes far
  // longer than ever before is a CommError; communicators are aborted then, so that the GPU comes to an end.
  cudaError_t wait(cudaStream_t stream);
  cudaError_t wait(cudaEvent_t event);
  // Before what the stream uses goes: waits a little, and then aborts transfers to which others did not come; at once
  // where a rank is lost, so that nobody waits for it any more.
  void drain(cudaStream_t stream);

 private:
  using Clock = std::chrono::steady_clock;
  cudaError_t poll(const std::function<cudaError_t()>& state);
  void look_after_ranks(Clock::time_point begin, std::optional<Clock::time_point>& left_at);
  bool is_any_lost() const;
  [[noreturn]] void fail(int rank, const std::string& why);
  void abort(const std::string& why);

  std::shared_ptr<RankGroups> ranks_;
  std::shared_ptr<DeviceGroups> groups_;
  std::map<Channel, std::uint16_t> indices_;
  Clock::duration longest_{0};  // that anything was waited for
};

}  // namespace overtake
