// NCCL with one rank: every kind gives back what it was given, on a stream and in a captured graph, over and over.

#include "comm/nccl/nccl_group.h"

#include <gtest/gtest.h>

#include "base/bf16.h"
#include "base/error.h"
#include "cuda/against_cpu.h"
#include "exec/cuda/handles.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

constexpr std::size_t kCount = 10007;

template <class T>
class Nccl : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Nccl, Types);

// All kinds one after the other: the last of six arrays has come through all.
template <class T>
void enqueue_all(NcclGroup& group, cudaStream_t stream, std::vector<std::unique_ptr<DeviceArray<T>>>& x) {
  const DType dtype = std::is_same_v<T, float> ? DType::f32 : DType::bf16;
  using What = NcclCall::What;
  const auto one = [&](What what, std::size_t from, std::size_t to) {
    group.enqueue(
        stream,
        {.what = what, .from = x[from]->data(), .to = x[to]->data(), .count = kCount, .dtype = dtype, .peer = 0});
  };
  one(What::all_reduce, 0, 1);
  one(What::reduce_scatter, 1, 2);
  one(What::all_gather, 2, 3);
  one(What::broadcast, 3, 3);
  one(What::reduce, 3, 4);
  const NcclCall to_itself[] = {
      {.what = What::send, .from = x[4]->data(), .to = nullptr, .count = kCount, .dtype = dtype, .peer = 0},
      {.what = What::recv, .from = nullptr, .to = x[5]->data(), .count = kCount, .dtype = dtype, .peer = 0}};
  group.enqueue(stream, to_itself);
  one(What::all_reduce, 5, 5);
}

template <class T>
std::vector<std::unique_ptr<DeviceArray<T>>> arrays(const std::vector<T>& first) {
  std::vector<std::unique_ptr<DeviceArray<T>>> x;
  x.push_back(std::make_unique<DeviceArray<T>>(first));
  while (x.size() < 6) x.push_back(std::make_unique<DeviceArray<T>>(kCount));
  return x;
}

TYPED_TEST(Nccl, OneRankGetsBackWhatItGives) {
  OVERTAKE_NEEDS_GPU();
  const TemporaryFolder folder;
  FileStore store(folder.path());
  const auto group =
      make_nccl_group(store, {.rank = 0, .size = 1, .name = "one", .time_out = std::chrono::seconds(60)});
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->report().version.substr(0, 2), "2.");
  EXPECT_FALSE(group->report().nvls.empty());
  const CudaStream stream = make_stream(0);
  for (unsigned round = 0; round < 3; ++round) {
    const std::vector<TypeParam> given = random_values<TypeParam>(kCount, round);
    auto x = arrays(given);
    enqueue_all(*group, stream.get(), x);
    group->wait(stream.get());
    expect_same_bytes(x[5]->download(), given, "result");
  }
}

TYPED_TEST(Nccl, OneRankInACapturedGraph) {
  OVERTAKE_NEEDS_GPU();
  const TemporaryFolder folder;
  FileStore store(folder.path());
  const auto group =
      make_nccl_group(store, {.rank = 0, .size = 1, .name = "one", .time_out = std::chrono::seconds(60)});
  const CudaStream stream = make_stream(0);
  auto x = arrays(random_values<TypeParam>(kCount, 1));
  check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
  enqueue_all(*group, stream.get(), x);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check_cuda(cudaStreamEndCapture(stream.get(), &graph), "end of capture");
  check_cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaGraphDestroy(graph);
  const CudaGraphExec owned(exec);
  for (unsigned round = 0; round < 5; ++round) {
    const std::vector<TypeParam> given = random_values<TypeParam>(kCount, 7 + round);
    check_cuda(cudaMemcpy(x[0]->data(), given.data(), kCount * sizeof(TypeParam), cudaMemcpyHostToDevice), "upload");
    check_cuda(cudaMemset(x[5]->data(), 0xff, kCount * sizeof(TypeParam)), "poison");
    check_cuda(cudaDeviceSynchronize(), "upload");
    check_cuda(cudaGraphLaunch(exec, stream.get()), "launch");
    group->wait(stream.get());
    expect_same_bytes(x[5]->download(), given, "result");
  }
}

TEST(NcclFaults, AGroupThatHasMetOrANumberThatIsNone) {
  OVERTAKE_NEEDS_GPU();
  const TemporaryFolder folder;
  FileStore store(folder.path());
  const NcclOptions options{.rank = 0, .size = 1, .name = "one", .time_out = std::chrono::seconds(60)};
  make_nccl_group(store, options);
  EXPECT_THROW(make_nccl_group(store, options), UserError);
  EXPECT_THROW(make_nccl_group(store, {.rank = 1, .size = 1, .name = "two"}), UserError);
}

// Whoever waits for ranks that do not come says so when the time is over.
TEST(NcclFaults, ARankThatDoesNotComeIsNotWaitedForForEver) {
  OVERTAKE_NEEDS_GPU();
  const TemporaryFolder folder;
  FileStore store(folder.path());
  EXPECT_THROW(
      make_nccl_group(store, {.rank = 1, .size = 2, .name = "first", .time_out = std::chrono::milliseconds(200)}),
      CommError);
  EXPECT_THROW(
      make_nccl_group(store, {.rank = 0, .size = 2, .name = "second", .time_out = std::chrono::milliseconds(2000)}),
      CommError);
}

}  // namespace
}  // namespace overtake
