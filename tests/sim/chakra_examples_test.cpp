// Files with exactly the attributes that others write: ASTRA-sim's examples (astra-sim/astra-sim,
// examples/workload/microbenchmarks/generator_scripts/), the converters of mlcommons/chakra (src/converter/
// text_converter.py and pytorch_converter.py, also as it was before its pull request 112), and ASTRA-sim's generator of
// graphs (astra-sim/symbolic_tensor_graph, which writes num_ops and tensor_size).

#include <gtest/gtest.h>

#include "base/error.h"
#include "chakra_case.h"
#include "chakra_plan.h"
#include "sim/chakra/pytorch.h"
#include "sim/cluster_simulator.h"
#include "sim_case.h"

namespace overtake {
namespace {

using namespace chakra_case;

constexpr int kAllToAll = 6;

// On one node of as many devices, by the links alone.
std::int64_t time_of(const ChakraPlan& in, int ranks) {
  const Cluster cluster = tests::small_cluster(1, ranks);
  const Topology topology = make_topology(cluster);
  std::vector<TaskCost> work(in.plan.graph.tasks.size());
  for (TaskId t = 0; t < work.size(); ++t) work[t].ns = in.durations_ns[t];
  ClusterJob job{.plan = &in.plan, .work = work};
  for (int d = 0; d < ranks; ++d) job.devices.push_back(static_cast<std::uint32_t>(d));
  return simulate(cluster, topology, {&job, 1},
                  {.algorithm = Algorithm::ring, .protocol = Protocol::ideal, .overlap_slows = false})[0]
      .trace.step_ns;
}

std::size_t count_of(const ChakraPlan& in, Kind kind) {
  return static_cast<std::size_t>(std::ranges::count(in.plan.graph.tasks, kind, &Task::kind));
}

// all_to_all.py and its three siblings: ids go on from rank to rank.
TEST(ChakraExamples, MicroBenchmarksOfAstraSim) {
  constexpr int kRanks = 8, kWay = 600;
  constexpr std::int64_t kMiB = 1 << 20;
  for (const auto& [type, name, ns] : {std::tuple{int{kAllReduce}, "all_reduce", 14 * (kWay + kMiB / 8 / 100)},
                                       std::tuple{int{kAllGather}, "all_gather", 7 * (kWay + kMiB / 100)},
                                       std::tuple{int{kReduceScatter}, "reduce_scatter", 7 * (kWay + kMiB / 8 / 100)},
                                       std::tuple{kAllToAll, "all_to_all", kWay + 7 * kMiB / 8 / 100}}) {
    std::vector<std::string> files;
    for (std::uint64_t rank = 0; rank < kRanks; ++rank)
      files.push_back(trace({node(rank, std::string(name) + "_8npus_1MB", kCollective)
                                 .flag("is_cpu_op", false)
                                 .number("comm_type", type)
                                 .number("comm_size", kMiB)}));
    const ChakraPlan in = read(files);
    EXPECT_EQ(to_string(in.plan.graph.tasks[0].kind), name);
    EXPECT_NEAR(static_cast<double>(time_of(in, kRanks)), static_cast<double>(ns), 20) << name;
    EXPECT_TRUE(in.notes.empty()) << in.notes[0];
  }
}

// DLRM as text_converter.py writes it: no version, all dimensions, compute times in microseconds, no is_cpu_op.
TEST(ChakraExamples, TextInputOfDlrm) {
  const std::string metadata =
      behind_length(bytes_field(2, bytes_field(1, "schema") + bytes_field(29, "1.0.2-chakra.1.0.0")) +
                    bytes_field(2, bytes_field(1, "input_file") + bytes_field(29, "HYBRID_DLRM 1")));
  const std::string all_dims = bytes_field(28, bytes_field(1, std::string("\x01\x01", 2)));
  const auto file = [&] {
    std::string out = metadata;
    for (const NodeBytes& n :
         {node(0, "COMP_NODE_Embedding_FWD", kCompute).duration(20),
          node(1, "COMM_COLL_NODE_Embedding_ALLTOALL", kCollective)
              .collective(kAllToAll, 400'000)
              .attribute("involved_dim", all_dims)
              .on_data({0}),
          node(2, "COMP_NODE_Top_FWD", kCompute).duration(30).on_data({1}),
          node(3, "COMM_COLL_NODE_Top_ALLREDUCE", kCollective).collective(kAllReduce, 400'000).on_data({2})})
      out += behind_length(n.bytes);
    return out;
  };
  const ChakraPlan in = read({file(), file(), file(), file()});
  EXPECT_EQ(count_of(in, Kind::all_to_all), 4u);
  EXPECT_EQ(time_of(in, 4), 20'000 + (600 + 3000) + 30'000 + 6 * (600 + 1000));
}

// Ranks of a mixture of experts send what was routed to them.
TEST(ChakraExamples, AllToAllOfDifferentSizesTakesTheLargest) {
  const auto file = [](std::int64_t bytes) {
    return trace({node(1, "a2a", kCollective).collective(kAllToAll, bytes)});
  };
  const ChakraPlan in = read({file(400), file(100), file(250)});
  for (TaskId t = 0; t < 3; ++t) EXPECT_EQ(in.plan.graph.bytes(in.plan.graph.reads(t)[0]), 400);
  ASSERT_EQ(in.notes.size(), 1u);
  EXPECT_TRUE(says(in.notes[0], {"1 all-to-alls", "the most"}));
}

TEST(ChakraExamples, GraphsWithOperationsInsteadOfTimes) {
  const ChakraPlan in = read({trace(
      {node(0, "gemm", kCompute).flag("is_cpu_op", false).number("num_ops", 1000, 13).number("tensor_size", 2000, 13),
       node(1, "remote", kLoad).flag("is_cpu_op", false).number("tensor_size", 64, 13)})});
  EXPECT_TRUE(in.has_times);
  EXPECT_TRUE(in.notes.empty());
  EXPECT_EQ(in.operations[0], 1000);
}

// Nothing to say how long a computation takes: told, with a remedy.
TEST(ChakraExamples, MissingTimesAreTold) {
  const auto gpu = [](std::uint64_t id) { return node(id, "k", kCompute).flag("is_cpu_op", false); };
  const auto cpu = [](std::uint64_t id) { return node(id, "call", kCompute).flag("is_cpu_op", true).number("tid", 1); };
  const ChakraPlan none = read({trace({gpu(1), gpu(2), cpu(3)})});
  EXPECT_FALSE(none.has_times);
  ASSERT_EQ(none.notes.size(), 1u);
  EXPECT_TRUE(says(none.notes[0], {"3 of 3 computations", "duration_micros", "num_ops", "profile"}));
  const ChakraPlan some = read({trace({gpu(1).duration(4), gpu(2), cpu(3)})});
  EXPECT_TRUE(some.has_times);
  ASSERT_EQ(some.notes.size(), 1u);
  EXPECT_TRUE(says(some.notes[0], {"2 of 3"}));
  // The host's calls have often nothing of their own, and files of communication have no computations.
  EXPECT_TRUE(read({trace({gpu(1).duration(4), cpu(3)})}).notes.empty());
  EXPECT_TRUE(read({trace({node(1, "ar", kCollective).collective(0, 8)})}).notes.empty());
}

// inputs of a node: values and types as Python prints them.
NodeBytes with_inputs(NodeBytes n, std::string_view values, std::string_view types) {
  return n.add(bytes_field(8, bytes_field(1, values) + bytes_field(2, "[[]]") + bytes_field(3, types)));
}

constexpr std::string_view kTensor = "[[5, 6, 0, 1024, 4, 'cuda:0'], 'x, ]', 7]",
                           kTypes = "['Tensor(float)', 'String', 'Int']";

// Before pull request 112 the converter called the host's calls collectives, too, without a comm_type.
TEST(ChakraExamples, HostCallsBesideKernelsOfPyTorch) {
  const auto file = [](bool has_kernel) {
    std::vector<NodeBytes> nodes = {
        with_inputs(node(10, "c10d::allreduce_", kCollective).flag("is_cpu_op", true).number("tid", 1).duration(3),
                    "[[[5, 6, 0, 1024, 4, 'cuda:0'], [7, 8, 0, 10, 2, 'cuda:0']]]",
                    "['GenericList[Tensor(float),Tensor(c10::Half)]']"),
        node(11, "record_param_comms", kCompute).after({10}).flag("is_cpu_op", true).number("tid", 1).duration(1),
        with_inputs(node(12, "nccl:all_reduce", kCollective)
                        .after({11})
                        .flag("is_cpu_op", true)
                        .number("tid", 1)
                        .text("pg_name", "0"),
                    kTensor, kTypes)};
    if (has_kernel)
      nodes.push_back(
          node(13, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", kCollective)
              .after({12})
              .flag("is_cpu_op", false)
              .number("stream", 20)
              .duration(50)
              .number("comm_type", 0)
              .number("comm_size", 4096)
              .text("pg_name", "0"));
    return trace(nodes);
  };
  const ChakraPlan with = read({file(true), file(true)});
  EXPECT_EQ(count_of(with, Kind::all_reduce), 2u);
  EXPECT_EQ(with.plan.graph.tasks[6].kind, Kind::all_reduce) << "the kernel";
  EXPECT_EQ(with.durations_ns[0], 3000) << "the call is a computation of the host";
  ASSERT_EQ(with.notes.size(), 1u);
  EXPECT_TRUE(says(with.notes[0], {"4 nodes of the host", "computations of the host"}));
  // A trace of the host alone: the innermost call communicates.
  const ChakraPlan without = read({file(false), file(false)});
  EXPECT_EQ(count_of(without, Kind::all_reduce), 2u);
  EXPECT_EQ(without.plan.graph.tasks[4].kind, Kind::all_reduce);
  EXPECT_EQ(without.plan.graph.bytes(without.plan.graph.reads(4)[0]), 4096);
  ASSERT_EQ(without.notes.size(), 2u);
  EXPECT_TRUE(says(without.notes[0], {"2 collectives have no comm_type", "names", "inputs"}));
}

// c10d:: alone, as gloo has it.
TEST(ChakraExamples, HostCallsAlone) {
  const auto file = [] {
    return trace({with_inputs(node(1, "c10d::alltoall_base_", kCollective).flag("is_cpu_op", true).number("tid", 1),
                              kTensor, kTypes)});
  };
  const ChakraPlan in = read({file(), file()});
  EXPECT_EQ(count_of(in, Kind::all_to_all), 2u);
  EXPECT_EQ(in.plan.graph.bytes(in.plan.graph.reads(0)[0]), 4096);
  EXPECT_TRUE(says(error_of({trace({node(1, "c10d::send", kCollective).flag("is_cpu_op", true)})}),
                   {"run.0.et: node 1 'c10d::send'", "comm_type", "alltoall"}));
  EXPECT_TRUE(says(error_of({trace({node(1, "c10d::allreduce_", kCollective).flag("is_cpu_op", true)})}),
                   {"node 1", "comm_size"}));
}

// Kernels of sends and receives have a size, and nobody to send to.
TEST(ChakraExamples, MessagesWithoutPartnersAreReplayed) {
  const ChakraPlan in = read({trace({node(1, "ncclDevKernel_SendRecv", kSend)
                                         .flag("is_cpu_op", false)
                                         .number("stream", 7)
                                         .duration(40)
                                         .number("comm_size", 4096)
                                         .text("pg_name", "3")})});
  EXPECT_EQ(in.plan.graph.tasks[0].op, Op::block);
  EXPECT_EQ(in.durations_ns[0], 40'000);
  ASSERT_EQ(in.notes.size(), 1u);
  EXPECT_TRUE(says(in.notes[0], {"1 sends and receives", "as long as was recorded"}));
}

TEST(ChakraExamples, NamesOfPyTorch) {
  using chakra::collective_named;
  using chakra::CommType;
  EXPECT_EQ(collective_named("c10d::allreduce_"), CommType::all_reduce);
  EXPECT_EQ(collective_named("nccl:_all_gather_base"), CommType::all_gather);
  EXPECT_EQ(collective_named("nccl:_reduce_scatter_base"), CommType::reduce_scatter);
  EXPECT_EQ(collective_named("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"), CommType::reduce_scatter);
  EXPECT_EQ(collective_named("nccl:all_to_all"), CommType::all_to_all);
  EXPECT_EQ(collective_named("ncclDevKernel_SendRecv(ncclDevComm*)"), CommType::all_to_all);
  EXPECT_EQ(collective_named("c10d::broadcast_"), CommType::broadcast);
  EXPECT_EQ(collective_named("c10d::barrier"), CommType::barrier);
  EXPECT_EQ(collective_named("aten::mm"), std::nullopt);
}

TEST(ChakraExamples, SizesOfPyTorchsInputs) {
  using chakra::tensor_bytes;
  EXPECT_EQ(tensor_bytes(kTensor, kTypes), 4096);
  EXPECT_EQ(tensor_bytes("[[[1, 2, 0, 3, 2, 'cpu'], [1, 2, 0, 5, 8, 'cpu']], 4]",
                         "['GenericList[Tensor(a),Tensor(b)]', 'Int']"),
            46);
  EXPECT_EQ(tensor_bytes("[4]", "['Int']"), std::nullopt);
  EXPECT_EQ(tensor_bytes("[]", "[]"), std::nullopt);
  EXPECT_EQ(tensor_bytes("", "['Tensor(float)']"), std::nullopt);
  EXPECT_EQ(tensor_bytes("[[1, 2, 0, -3, 2, 'cpu']]", "['Tensor(a)']"), std::nullopt);
  EXPECT_EQ(tensor_bytes("[[1, 2, 0, 99999999999999999999, 2, 'cpu']]", "['Tensor(a)']"), std::nullopt);
  EXPECT_EQ(tensor_bytes("['\\", "['Tensor(a)']"), std::nullopt);
}

}  // namespace
}  // namespace overtake
