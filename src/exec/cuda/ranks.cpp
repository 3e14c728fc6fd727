#include "exec/cuda/ranks.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "comm/nccl/nccl_group.h"

namespace overtake {
namespace {

using namespace std::chrono_literals;

constexpr auto kGrace = 2s;          // for what ranks that have left had enqueued before
constexpr auto kNaming = 1s;         // for the world group to find out whose fault an error of NCCL is
constexpr int kSlowerThanEver = 10;  // so many times as long as the longest wait so far is no fault

// Short at first, so that steps follow each other closely.
class Pause {
 public:
  void sleep() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min<std::chrono::microseconds>(pause_ * 2, 200us);
  }

 private:
  std::chrono::microseconds pause_{10};
};

// CUDA keeps "not ready" as its last error, and whoever looks for errors of a launch would find it.
cudaError_t forgotten_if_busy(cudaError_t state) {
  if (state == cudaErrorNotReady) cudaGetLastError();
  return state;
}

}  // namespace

NcclGroup& GpuRanks::group(const Channel& channel) const {
  const auto found = groups_->by_channel.find(to_string(channel));
  OVERTAKE_CHECK(found != groups_->by_channel.end(), "no communicator for channel {}", to_string(channel));
  return *found->second;
}

std::uint16_t GpuRanks::index_of(const Channel& channel) {
  return indices_.try_emplace(channel, static_cast<std::uint16_t>(indices_.size())).first->second;
}

cudaError_t GpuRanks::wait(cudaStream_t stream) {
  if (!are_there()) return cudaStreamSynchronize(stream);
  return poll([stream] { return cudaStreamQuery(stream); });
}

cudaError_t GpuRanks::wait(cudaEvent_t event) {
  if (!are_there()) return cudaEventSynchronize(event);
  return poll([event] { return cudaEventQuery(event); });
}

cudaError_t GpuRanks::poll(const std::function<cudaError_t()>& state) {
  const Clock::time_point begin = Clock::now();
  std::optional<Clock::time_point> left_at;
  for (Pause pause;; pause.sleep()) {
    const cudaError_t now = forgotten_if_busy(state());
    if (now != cudaErrorNotReady) {
      longest_ = std::max(longest_, Clock::now() - begin);
      return now;
    }
    look_after_ranks(begin, left_at);
  }
}

void GpuRanks::look_after_ranks(Clock::time_point begin, std::optional<Clock::time_point>& left_at) {
  Group& world = *ranks_->world;
  int left = -1;
  try {
    left = world.check_ranks();
  } catch (const CommError&) {
    abort("another rank is lost");
    throw;
  }
  try {
    for (const auto& [name, group] : groups_->by_channel) group->check();
  } catch (const CommError& of_nccl) {
    abort(of_nccl.what());
    const Clock::time_point deadline = Clock::now() + kNaming;
    for (Pause pause; Clock::now() < deadline; pause.sleep()) world.check_ranks();
    throw;
  }
  const Clock::time_point now = Clock::now();
  if (left >= 0 && !left_at) left_at = now;
  if (left_at && now > *left_at + kGrace) fail(left, fmt::format("rank {} has left, but the GPU waits for it", left));
  const auto patience = world.patience() + kSlowerThanEver * longest_;
  if (now > begin + patience)
    fail(-1, fmt::format("the GPU has not come to an end within {:g} s, and no rank is lost",
                         std::chrono::duration<double>(patience).count()));
}

void GpuRanks::fail(int rank, const std::string& why) {
  abort(why);
  throw CommError(rank, fmt::format("rank {}: {}", own_rank(), why));
}

void GpuRanks::abort(const std::string& why) {
  for (const auto& [name, group] : groups_->by_channel) group->abort(why);
}

void GpuRanks::drain(cudaStream_t stream) {
  if (!are_there()) {
    cudaStreamSynchronize(stream);
    return;
  }
  const auto has_ended = [&](Clock::duration time) {
    const Clock::time_point deadline = Clock::now() + time;
    for (Pause pause; forgotten_if_busy(cudaStreamQuery(stream)) == cudaErrorNotReady; pause.sleep())
      if (Clock::now() > deadline) return false;
    return true;
  };
  if (!is_any_lost() && has_ended(kGrace)) return;
  abort("the step was given up");
  has_ended(kGrace);
}

bool GpuRanks::is_any_lost() const {
  try {
    ranks_->world->check_ranks();
    return false;
  } catch (const CommError&) {
    return true;
  }
}

}  // namespace overtake
