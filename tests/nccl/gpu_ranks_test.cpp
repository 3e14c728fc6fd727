// Waiting for a GPU that waits for others: they are looked after meanwhile. What the GPU waits for here is the host.

#include "exec/cuda/ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/local/local_group.h"
#include "cuda/device_array.h"
#include "exec/cuda/handles.h"

namespace overtake {
namespace {

using namespace std::chrono_literals;

// A stream that does not come to an end before it is let go.
class HeldStream {
 public:
  HeldStream() {
    check_cuda_call(cudaLaunchHostFunc(
                        stream_.get(),
                        [](void* held) {
                          while (*static_cast<std::atomic<bool>*>(held)) std::this_thread::sleep_for(1ms);
                        },
                        &is_held_),
                    "holding a stream");
  }
  ~HeldStream() {
    is_held_ = false;
    cudaStreamSynchronize(stream_.get());
  }
  cudaStream_t get() const { return stream_.get(); }
  void let_go() { is_held_ = false; }

 private:
  std::atomic<bool> is_held_{true};
  CudaStream stream_ = make_stream(0);
};

// Rank 0 of two, and the other one.
struct TwoRanks {
  explicit TwoRanks(std::chrono::milliseconds patience) {
    auto groups = make_local_groups(2, {.group = {.patience = patience}, .on_message = {}});
    own->world = std::move(groups[0]);
    other = std::move(groups[1]);
  }
  std::shared_ptr<RankGroups> own = std::make_shared<RankGroups>();
  std::unique_ptr<Group> other;
  GpuRanks ranks{own, std::make_shared<DeviceGroups>()};
};

TEST(GpuRanks, WaitsAsLongAsAllIsWell) {
  OVERTAKE_NEEDS_GPU();
  TwoRanks two(10s);
  HeldStream stream;
  std::thread later([&] {
    std::this_thread::sleep_for(300ms);
    stream.let_go();
  });
  EXPECT_EQ(two.ranks.wait(stream.get()), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "that it was not ready is no error";
  later.join();
}

TEST(GpuRanks, ARankThatLeavesIsNamed) {
  OVERTAKE_NEEDS_GPU();
  TwoRanks two(10s);
  const HeldStream stream;
  two.other.reset();
  try {
    two.ranks.wait(stream.get());
    ADD_FAILURE() << "nothing was said";
  } catch (const CommError& e) {
    EXPECT_EQ(e.rank(), 1) << e.what();
  }
}

TEST(GpuRanks, AGpuThatHangsIsNotWaitedForForEver) {
  OVERTAKE_NEEDS_GPU();
  TwoRanks two(500ms);
  const HeldStream stream;
  EXPECT_THROW(two.ranks.wait(stream.get()), CommError);
}

}  // namespace
}  // namespace overtake
