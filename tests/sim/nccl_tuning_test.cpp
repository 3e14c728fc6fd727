// What NCCL chooses, where its users or its makers say what it chose.

#include "sim/nccl_tuning.h"

#include <gtest/gtest.h>

#include "sim/collective_alone.h"
#include "sim_case.h"

namespace overtake {
namespace {

using tests::Simulation;
using tests::small_cluster;

Choice chosen(const char* preset, std::int64_t bytes, std::vector<std::uint32_t> devices = {}) {
  Simulation s(load_cluster(preset));
  const GroupId group = devices.empty() ? s.all() : s.collectives.add_group(std::move(devices));
  return choose(s.collectives.group(group), Operation::all_reduce, bytes);
}

TEST(NcclTuning, GenerationsByTheirLinks) {
  const auto of = [](const char* preset) {
    Simulation s(load_cluster(preset));
    return nccl::generation_of(s.collectives.group(s.all()));
  };
  EXPECT_EQ(of("p3.16xlarge"), nccl::Generation::volta);
  EXPECT_EQ(of("dgx-a100:2"), nccl::Generation::ampere);
  EXPECT_EQ(of("dgx-h200"), nccl::Generation::hopper);
}

// "8B~1MB uses Algo RING proto LL, 2MB~16GB uses Algo NVLS proto SIMPLE" (NVIDIA/nccl-tests issue 309).
TEST(NcclTuning, EightH100TakeRingsUntil1MiBAndTheSwitchFrom2MiBOn) {
  for (std::int64_t bytes = 64; bytes <= 1 << 20; bytes *= 2) {
    EXPECT_EQ(chosen("dgx-h100", bytes).algorithm, Algorithm::ring) << bytes;
    EXPECT_EQ(chosen("dgx-h100", bytes).protocol, Protocol::ll) << bytes;
  }
  for (std::int64_t bytes = 2 << 20; bytes <= std::int64_t{16} << 30; bytes *= 2)
    EXPECT_EQ(chosen("dgx-h100", bytes).algorithm, Algorithm::in_network) << bytes;
}

// Bus bandwidth is that of rings with up to four of eight H100, and more with five and more (NVIDIA/nccl issue 1455).
TEST(NcclTuning, FewDevicesTakeRings) {
  const std::int64_t bytes = std::int64_t{4} << 30;
  EXPECT_EQ(chosen("dgx-h100", bytes, {0, 1}).algorithm, Algorithm::ring);
  EXPECT_EQ(chosen("dgx-h100", bytes, {0, 1, 2, 3}).algorithm, Algorithm::ring);
  EXPECT_EQ(chosen("dgx-h100", bytes, {0, 1, 2, 3, 4}).algorithm, Algorithm::in_network);
}

// "You should see NVLS being used with single-node runs, NVLSTree with multi-node" (NVIDIA/nccl-tests issue 309).
// Switches of the network add only where NCCL is told to use them.
TEST(NcclTuning, SeveralNodesTakeTreesAboveTheirSwitches) {
  for (const char* preset : {"dgx-h100:2", "dgx-h100:4"}) {
    EXPECT_EQ(chosen(preset, 8).algorithm, Algorithm::tree) << preset;
    EXPECT_EQ(chosen(preset, 8).protocol, Protocol::ll) << preset;
    EXPECT_EQ(chosen(preset, 256 << 20).algorithm, Algorithm::nvls_tree) << preset;
  }
  EXPECT_EQ(chosen("dgx-a100:2", 1 << 30).algorithm, Algorithm::ring);
  Simulation s(load_cluster("dgx-h100:2"));
  const DeviceGroup& group = s.collectives.group(s.all());
  EXPECT_EQ(choose(group, Operation::all_gather, 1 << 30).algorithm, Algorithm::ring);
  EXPECT_EQ(choose(group, Operation::all_reduce, 1 << 30, Algorithm::in_network).algorithm, Algorithm::in_network);
}

// Channels of 20.6 GB/s: 32 shared by the ranks, doubled while a part is above 16 MiB (src/enqueue.cc of NCCL).
TEST(NcclTuning, LargerMessagesHaveMoreChannels) {
  EXPECT_DOUBLE_EQ(nccl::message_limit(8, 32 << 20), 4 * 20.6);
  EXPECT_DOUBLE_EQ(nccl::message_limit(8, 128 << 20), 8 * 20.6);
  EXPECT_DOUBLE_EQ(nccl::message_limit(8, 256 << 20), 16 * 20.6);
  EXPECT_DOUBLE_EQ(nccl::message_limit(8, 1 << 30), 32 * 20.6);
  EXPECT_DOUBLE_EQ(nccl::message_limit(2, 1), 16 * 20.6);
  EXPECT_DOUBLE_EQ(nccl::message_limit(100, 1), 20.6);
}

TEST(NcclTuning, WithoutAProtocolTheLinksAreAllThereIs) {
  Simulation s(load_cluster("dgx-h100:2"));
  const DeviceGroup& group = s.collectives.group(s.all());
  for (const Algorithm a : {Algorithm::ring, Algorithm::tree, Algorithm::nvls_tree}) {
    EXPECT_EQ(nccl::payload_share(group, LinkKind::nvlink, a, Protocol::ideal, 1 << 20), 1);
    EXPECT_EQ(nccl::fill_us(group, a, Protocol::ideal, 14, 1e9), 0);
    EXPECT_EQ(nccl::base_latency_us(a, Protocol::ideal), 0);
  }
}

// nccl-tests' bandwidths; a process that serves all devices takes at least what their launches take.
TEST(CollectiveAlone, TermsOfNcclTests) {
  const Cluster cluster = small_cluster(1, 4);
  const Topology topology = make_topology(cluster);
  const ClusterOptions ideal{.algorithm = Algorithm::ring, .protocol = Protocol::ideal};
  const auto time = [&](Operation operation) {
    return time_alone(cluster, topology, {0, 1, 2, 3}, {operation, 400'000}, ideal);
  };
  const CollectiveTime all_reduce = time(Operation::all_reduce);
  EXPECT_EQ(all_reduce.ns, 6 * (tests::kWayNs + 1000));
  EXPECT_DOUBLE_EQ(all_reduce.algbw_gbs, 400'000.0 / 9600);
  EXPECT_DOUBLE_EQ(all_reduce.busbw_gbs, all_reduce.algbw_gbs * 1.5);
  EXPECT_EQ(time(Operation::all_gather).ns, 3 * (tests::kWayNs + 1000));
  EXPECT_DOUBLE_EQ(time(Operation::all_gather).busbw_gbs, time(Operation::all_gather).algbw_gbs * 0.75);
  // Each to the next, all at once, and every link has one of them each way.
  EXPECT_EQ(time(Operation::send_recv).ns, tests::kWayNs + 4000);
  EXPECT_DOUBLE_EQ(time(Operation::send_recv).busbw_gbs, time(Operation::send_recv).algbw_gbs);
  EXPECT_DOUBLE_EQ(time(Operation::broadcast).busbw_gbs, time(Operation::broadcast).algbw_gbs);
  const Cluster h100 = load_cluster("dgx-h100");
  const auto small = [&](std::uint32_t devices_per_process) {
    return time_alone(h100, make_topology(h100), {0, 1, 2, 3}, {Operation::all_reduce, 8, devices_per_process}, {}).ns;
  };
  EXPECT_EQ(small(4), 24'000);
  EXPECT_EQ(small(0), small(4)) << "one node, one process";
  EXPECT_LT(small(1), small(4));
}

}  // namespace
}  // namespace overtake
