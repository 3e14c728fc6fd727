// Which GPU a process takes, and what it says where there is none for it.

#include "train/device_ranks.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace overtake {
namespace {

CudaDescription machine(std::size_t gpus) {
  CudaDescription cuda{.is_built_in = true, .note = gpus == 0 ? "no GPU: none" : "", .libraries = {}, .gpus = {}};
  cuda.gpus.resize(gpus);
  return cuda;
}

std::string error_of(const std::string& device, int local_rank, const CudaDescription& cuda, bool has_nccl) {
  try {
    gpu_of_rank(device, 10 + local_rank, local_rank, cuda, has_nccl);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(GpuOfRank, IsTheOneOfItsNumberUnlessNamed) {
  EXPECT_EQ(gpu_of_rank("cuda", 9, 1, machine(2), true), "cuda:1");
  EXPECT_EQ(gpu_of_rank("cuda:0", 9, 1, machine(2), true), "cuda:0");
}

TEST(GpuOfRank, SaysWhatIsMissing) {
  EXPECT_NE(error_of("cuda", 0, {}, false).find("no CUDA"), std::string::npos);
  EXPECT_NE(error_of("cuda", 0, machine(2), false).find("no NCCL"), std::string::npos);
  EXPECT_NE(error_of("cuda", 0, machine(0), true).find("no GPU: none"), std::string::npos);
  const std::string few = error_of("cuda", 4, machine(4), true);
  EXPECT_NE(few.find("rank 14 is process number 5 on its host, which has 4 GPUs"), std::string::npos) << few;
  EXPECT_NE(few.find("`virtual_gpus`"), std::string::npos) << few;
}

// Two stages, two replicas, by hand: messages both ways in each replica, and a sum between the replicas of each stage.
Detail two_by_two() {
  Detail whole;
  whole.replicas = 2;
  whole.devices = 4;
  Graph& g = whole.plan.graph;
  const LayerId layer = g.add_layer("layer");
  const auto buffer = [&](std::int64_t device, std::int64_t count) {
    const BufferId b = g.add_buffer("b", {count}, DType::f32, Role::activation);
    g.buffers[b].device = static_cast<std::uint16_t>(device);
    return b;
  };
  const auto add = [&](Kind kind, std::int64_t device, const Attrs& attrs, BufferId read, BufferId written) {
    const TaskId t = g.add_task(kind, Op::transfer, layer, g.add_attrs(attrs), {read}, {written});
    g.tasks[t].device = static_cast<std::uint16_t>(device);
    whole.plan.lanes.push_back({static_cast<std::uint16_t>(device), {t}, true});
  };
  std::int64_t number = 0;
  for (const auto& [from, to] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 1}, {1, 0}, {2, 3}, {3, 2}}) {
    const BufferId token = buffer(from, 0);
    add(Kind::send, from, {{"message", number}, {"peer", to}}, buffer(from, 8), token);
    add(Kind::recv, to, {{"message", number++}, {"peer", from}}, token, buffer(to, 8));
  }
  for (const std::int64_t stage : {0, 1})
    for (const std::int64_t replica : {0, 1})
      add(Kind::all_reduce, 2 * replica + stage,
          {{"collective", stage}, {"members", std::vector<std::int64_t>{stage, 2 + stage}}, {"index", replica}},
          buffer(2 * replica + stage, 8), buffer(2 * replica + stage, 8));
  return whole;
}

TEST(ConnectDevices, EachRankItsOwnChannelsOnceInOneOrder) {
  struct Made {
    std::string channel;
    int rank, size, blocks;
    auto operator<=>(const Made&) const = default;
  };
  std::vector<std::vector<Made>> by_rank;
  for (int rank = 0; rank < 4; ++rank) {
    DeviceGroups groups;
    std::vector<Made>& made = by_rank.emplace_back();
    const auto make = [&](const std::string& channel, int own, int size, int blocks) -> std::shared_ptr<NcclGroup> {
      made.push_back({channel, own, size, blocks});
      return nullptr;
    };
    for (int twice = 0; twice < 2; ++twice) {
      const Detail whole = with_checked_turns(two_by_two());
      connect_channels(channels_of(whole.plan), rank, make, groups);
    }
    EXPECT_EQ(groups.by_channel.size(), 3u);
    int blocks = 0;
    for (const Made& m : made) blocks += m.blocks;
    EXPECT_LE(blocks, kMostNcclBlocks);
  }
  const std::vector<Made> first = {{"0>1", 0, 2, 8}, {"1>0", 1, 2, 8}, {"0+2", 0, 2, 16}},
                          last = {{"2>3", 1, 2, 8}, {"3>2", 0, 2, 8}, {"1+3", 1, 2, 16}};
  EXPECT_EQ(by_rank[0], first);
  EXPECT_EQ(by_rank[3], last);
}

}  // namespace
}  // namespace overtake
