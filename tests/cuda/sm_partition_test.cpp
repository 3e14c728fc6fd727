// Green contexts: kernels run on the SMs of their partition and no others, also when a graph that was captured from its
// streams is launched on another stream.

#include "exec/cuda/sm_partition.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>

#include "base/error.h"
#include "cuda/device_array.h"
#include "cuda/sm_probe.h"
#include "exec/cuda/description.h"

namespace overtake {
namespace {

constexpr int kBlocks = 4 * 132;

std::set<std::uint32_t> found(const DeviceArray<std::uint32_t>& sms) {
  const std::vector<std::uint32_t> all = sms.download();
  return {all.begin(), all.end()};
}

void expect_disjoint(const std::vector<std::set<std::uint32_t>>& all) {
  std::set<std::uint32_t> seen;
  for (const auto& sms : all)
    for (const std::uint32_t sm : sms) EXPECT_TRUE(seen.insert(sm).second) << "SM " << sm << " is in two partitions";
}

// One kernel on each partition (by hand, or as one graph): the SMs they ran on.
std::vector<std::set<std::uint32_t>> probe(const VirtualGpus& split, bool as_graph) {
  std::vector<CudaStream> streams;
  std::vector<std::unique_ptr<DeviceArray<std::uint32_t>>> sms;
  for (const SmPartition& gpu : split.gpus) {
    streams.push_back(gpu.make_stream(0));
    sms.push_back(std::make_unique<DeviceArray<std::uint32_t>>(kBlocks));
  }
  const CudaStream origin = make_stream(0);
  if (as_graph) {
    check_cuda(cudaStreamBeginCapture(origin.get(), cudaStreamCaptureModeThreadLocal), "capture");
    const CudaEvent fork = make_event(false);
    check_cuda(cudaEventRecord(fork.get(), origin.get()), "fork");
    std::vector<CudaEvent> ends;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      check_cuda(cudaStreamWaitEvent(streams[i].get(), fork.get(), 0), "fork");
      note_sms(streams[i].get(), kBlocks, sms[i]->data());
      ends.push_back(make_event(false));
      check_cuda(cudaEventRecord(ends.back().get(), streams[i].get()), "join");
      check_cuda(cudaStreamWaitEvent(origin.get(), ends.back().get(), 0), "join");
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check_cuda(cudaStreamEndCapture(origin.get(), &graph), "end of capture");
    check_cuda(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority), "instantiate");
    cudaGraphDestroy(graph);
    const CudaGraphExec owned(exec);
    check_cuda(cudaGraphLaunch(exec, origin.get()), "launch");
    check_cuda(cudaStreamSynchronize(origin.get()), "graph");
  } else {
    for (std::size_t i = 0; i < streams.size(); ++i) note_sms(streams[i].get(), kBlocks, sms[i]->data());
    check_cuda(cudaDeviceSynchronize(), "kernels");
  }
  std::vector<std::set<std::uint32_t>> all;
  for (const auto& s : sms) all.push_back(found(*s));
  return all;
}

TEST(SmPartition, VirtualGpusShareNoSms) {
  OVERTAKE_NEEDS_GPU();
  for (const unsigned count : {1u, 2u, 3u, 4u, 8u}) {
    const VirtualGpus split = split_gpu(count);
    ASSERT_EQ(split.gpus.size(), count);
    for (const bool as_graph : {false, true}) {
      const auto all = probe(split, as_graph);
      expect_disjoint(all);
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(split.gpus[i].sms(), split.gpus[0].sms());
        EXPECT_EQ(all[i].size(), split.gpus[i].sms()) << count << (as_graph ? ", as a graph" : "");
      }
    }
    EXPECT_LE(count * split.gpus[0].sms() + (split.rest ? split.rest->sms() : 0), 132u);
  }
}

TEST(SmPartition, SidePartitionsAreAtLeastAsLargeAsAskedFor) {
  OVERTAKE_NEEDS_GPU();
  const SmPartition side = make_side_partition(30);
  EXPECT_GE(side.sms(), 30u);
  EXPECT_LE(side.sms(), 40u);
  EXPECT_THROW(make_side_partition(100'000), UserError);
}

TEST(SmPartition, MoreThanThereCanBeIsAUserError) {
  OVERTAKE_NEEDS_GPU();
  const std::vector<unsigned> sizes = describe_cuda().gpus.at(0).virtual_gpu_sms;
  ASSERT_GE(sizes.size(), 8u);
  EXPECT_TRUE(std::ranges::is_sorted(sizes, std::greater()));
  EXPECT_EQ(split_gpu(static_cast<unsigned>(sizes.size())).gpus[0].sms(), sizes.back());
  try {
    split_gpu(static_cast<unsigned>(sizes.size()) + 1);
    ADD_FAILURE() << "no error";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("`virtual_gpus"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace overtake
