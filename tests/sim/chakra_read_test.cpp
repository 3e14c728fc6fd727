#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "chakra_case.h"
#include "chakra_plan.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using namespace chakra_case;
using Tasks = std::vector<TaskId>;

std::vector<Tasks> lanes_of(const Plan& plan) {
  std::vector<Tasks> out;
  for (const Lane& lane : plan.lanes) out.push_back(lane.tasks);
  return out;
}

std::int64_t read_bytes(const Graph& g, TaskId t) { return g.bytes(g.reads(t)[0]); }
std::int64_t written_bytes(const Graph& g, TaskId t) { return g.bytes(g.writes(t)[0]); }

TEST(ChakraRead, TakesNamesTimesAndDependencies) {
  const ChakraPlan in =
      read({trace({node(10, "embed", kCompute).duration(5).number("num_ops", 2000).number("tensor_size", 64, 13),
                   node(11, "gemm", kCompute).on_data({10}).duration(7).number("num_ops", 10, 17),
                   node(30, "norm", kCompute).on_data({11}).after({10, 11}).start(40),
                   node(12, "weights", kLoad).number("tensor_size", 4096, 13).duration(3)})});
  const Graph& g = in.plan.graph;
  ASSERT_EQ(g.tasks.size(), 4u);
  EXPECT_EQ(g.task_name(0), "embed.forward");
  EXPECT_EQ(g.task_name(2), "weights.load");
  EXPECT_EQ(g.tasks[1].op, Op::block);
  EXPECT_EQ(in.durations_ns, (std::vector<std::int64_t>{5000, 7000, 3000, 0}));
  EXPECT_EQ(in.operations, (std::vector<std::int64_t>{2000, 5, 0, 0}));
  EXPECT_EQ(in.bytes, (std::vector<std::int64_t>{64, 0, 4096, 0}));
  EXPECT_EQ(in.plan.waits, (std::vector<Wait>{{0, 1}, {0, 3}, {1, 3}}));
  EXPECT_EQ(lanes_of(in.plan), (std::vector<Tasks>{{0, 1, 3}, {2}}));
  ASSERT_EQ(in.recorded.spans.size(), 1u);
  EXPECT_EQ(in.recorded.spans[0].begin_ns, 0);
}

// Of control and on the one before it on its lane: nothing that the lane does not say.
TEST(ChakraRead, LeavesOutControlThatLanesImply) {
  const ChakraPlan in =
      read({trace({node(1, "a", kCompute), node(2, "b", kCompute).after({1}), node(3, "c", kCompute).after({1, 2})})});
  EXPECT_EQ(in.plan.waits, (std::vector<Wait>{{0, 2}}));
}

TEST(ChakraRead, KeepsTheOrderOfStreamsAndThreads) {
  const auto gpu = [](std::uint64_t id, std::int64_t stream, std::int64_t start) {
    return node(id, "k", kCompute).flag("is_cpu_op", false).number("stream", stream).number("tid", 99).start(start);
  };
  const auto cpu = [](std::uint64_t id, std::int64_t thread, std::int64_t start) {
    return node(id, "launch", kCompute).flag("is_cpu_op", true).number("tid", thread).start(start);
  };
  // Times against ids; a tie on stream 7; a GPU node that only has a tid.
  const ChakraPlan in =
      read({trace({gpu(1, 7, 900), gpu(2, 20, 100), gpu(3, 7, 300), gpu(4, 7, 300), gpu(5, 20, 50), cpu(6, 1, 20),
                   cpu(7, 2, 10), cpu(8, 1, 5), node(9, "old", kCompute).number("tid", 20).start(70)})});
  EXPECT_EQ(lanes_of(in.plan), (std::vector<Tasks>{{2, 3, 0}, {4, 8, 1}, {7, 5}, {6}}));
  EXPECT_EQ(in.recorded.spans.size(), 9u);
  EXPECT_EQ(in.recorded.spans[0].begin_ns, 895'000);
}

TEST(ChakraRead, PairsMessagesByTagAndOrder) {
  const ChakraPlan in =
      read({trace({node(1, "s", kSend).message(0, 1, 5, 100), node(2, "s", kSend).message(0, 1, 6, 200),
                   node(3, "s", kSend).message(0, 1, 5, 300)}),
            trace({node(1, "r", kRecv).message(0, 1, 6, 200), node(2, "r", kRecv).message(0, 1, 5, 100),
                   node(3, "r", kRecv).message(0, 1, 5, 300).number("stream", 4)})});
  const Graph& g = in.plan.graph;
  // Tasks go by id, then by rank: 0, 2, 4 send, 1, 3, 5 receive.
  for (const auto& [send, recv, bytes] : {std::tuple(0u, 3u, 100), {2u, 1u, 200}, {4u, 5u, 300}}) {
    EXPECT_EQ(g.tasks[send].kind, Kind::send);
    EXPECT_EQ(g.tasks[recv].kind, Kind::recv);
    EXPECT_EQ(g.tasks[recv].op, Op::transfer);
    EXPECT_EQ(g.writes(send)[0], g.reads(recv)[0]);
    EXPECT_EQ(written_bytes(g, send), 0);
    EXPECT_EQ(read_bytes(g, send), bytes);
    EXPECT_EQ(written_bytes(g, recv), bytes);
    EXPECT_EQ(g.buffers[g.writes(recv)[0]].device, 1);
  }
  EXPECT_EQ(lanes_of(in.plan), (std::vector<Tasks>{{0, 2, 4}, {5}, {1, 3}}));
  EXPECT_TRUE(in.plan.lanes[0].is_asynchronous);
  EXPECT_FALSE(in.plan.lanes[1].is_asynchronous);
}

TEST(ChakraRead, PairsCollectivesByGroupAndOrder) {
  const auto at = [](std::uint64_t id, Comm type, std::int64_t size, std::string_view group) {
    return node(id, "c", kCollective).collective(type, size).text("pg_name", group);
  };
  // Ranks 0 and 2 gather in group 1; all reduce in the default group, once called 0.
  const ChakraPlan in =
      read({trace({at(1, kAllReduce, 100, ""), at(2, kAllGather, 40, "1"), at(3, kReduceScatter, 100, "")}),
            trace({at(1, kAllReduce, 100, "0"), at(2, kReduceScatter, 100, "0").number("comm_priority", 3, 7)}),
            trace({at(1, kAllGather, 40, "1"), at(2, kAllReduce, 100, ""), at(3, kReduceScatter, 100, "")})});
  const Graph& g = in.plan.graph;
  std::map<std::int64_t, std::vector<std::pair<Kind, int>>> members;
  for (const Task& t : g.tasks) members[g.attrs_of(t).integer("collective")].emplace_back(t.kind, t.device);
  ASSERT_EQ(members.size(), 3u);
  for (auto& [number, list] : members) {
    std::ranges::sort(list);
    const Kind kind = list[0].first;
    EXPECT_TRUE(std::ranges::all_of(list, [&](const auto& m) { return m.first == kind; }));
    EXPECT_EQ(list.size(), kind == Kind::all_gather ? 2u : 3u);
  }
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    const Kind kind = g.tasks[t].kind;
    EXPECT_EQ(read_bytes(g, t), kind == Kind::all_gather ? 40 : 100);
    EXPECT_EQ(written_bytes(g, t), kind == Kind::all_gather ? 80 : kind == Kind::all_reduce ? 100 : 34);
    EXPECT_EQ(g.attrs_of(g.tasks[t]).integer("priority", 0),
              kind == Kind::reduce_scatter && g.tasks[t].device == 1 ? 3 : 0);
  }
}

// The same name for two groups, which PyTorch's list of them tells apart.
TEST(ChakraRead, TakesGroupsFromProcessGroups) {
  const auto file = [](std::string_view ranks) {
    const std::string list = "['[{\"pg_name\": \"7\", \"ranks\": " + std::string(ranks) + "}]']";
    return trace({node(1, "## process_group:init ##", kMetadata).add(bytes_field(8, bytes_field(1, list))),
                  node(2, "ar", kCollective).collective(kAllReduce, 8).text("pg_name", "7")});
  };
  const ChakraPlan in = read({file("[0, 1]"), file("[0, 1]"), file("[3, 2]"), file("[2, 3]")});
  const Graph& g = in.plan.graph;
  std::vector<std::int64_t> numbers;
  for (const Task& t : g.tasks)
    if (t.op == Op::transfer) numbers.push_back(g.attrs_of(t).integer("collective"));
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{0, 0, 1, 1}));
  EXPECT_TRUE(says(error_of({file("[0, 2]")}), {"run.0.et: node 2", "rank 2, whose file is missing"}));
  EXPECT_TRUE(
      says(error_of({file("[0, 1]"), file("[1]")}), {"run.0.et: node 2", "run.1.et takes no part in group '7'"}));
}

TEST(ChakraRead, ReplaysWhatPlansDoNotHave) {
  const auto broadcast = [] { return node(1, "b", kCollective).collective(kBroadcast, 64); };
  const ChakraPlan in = read({trace({broadcast().duration(9), node(2, "sync", kCollective).collective(kBarrier, 0)})});
  EXPECT_EQ(in.plan.graph.tasks[0].op, Op::block);
  EXPECT_EQ(in.durations_ns[0], 9000);
  EXPECT_EQ(in.plan.graph.tasks[1].kind, Kind::all_reduce);
  EXPECT_EQ(read_bytes(in.plan.graph, 1), 4);
  EXPECT_TRUE(says(error_of({trace({broadcast()})}), {"run.0.et: node 1 'b'", "comm_type 5", "no duration"}));
}

// By ids, rank 0 would wait for what rank 1 makes of the second node. No times say that it did.
TEST(ChakraRead, FindsAnOrderThatRunsWhereNoneIsRecorded) {
  const auto files = [](bool is_timed) {
    const auto at = [&](NodeBytes n, std::int64_t time) { return is_timed ? n.start(time) : n; };
    return std::vector<std::string>{
        trace({at(node(1, "late", kCompute).on_data({4}), 1), at(node(2, "early", kCompute), 2),
               node(3, "s", kSend).message(0, 1, 0, 8).on_data({2}), node(4, "r", kRecv).message(1, 0, 0, 8)}),
        trace({node(1, "r", kRecv).message(0, 1, 0, 8), node(2, "s", kSend).message(1, 0, 0, 8).on_data({1})})};
  };
  const ChakraPlan in = read(files(false));
  EXPECT_EQ(in.plan.graph.task_name(in.plan.lanes[0].tasks[0]), "early.forward");
  EXPECT_EQ(in.plan.graph.task_name(in.plan.lanes[0].tasks[1]), "late.forward");
  EXPECT_TRUE(
      says(error_of(files(true)),
           {"run.0.et",
            "1 of rank 0 -> 4 of rank 0 -> 2 of rank 1 -> 1 of rank 1 -> 3 of rank 0 -> 2 of rank 0 -> 1 of rank 0",
            "order on their stream"}));
}

// Kernels of less than a microsecond start at the same time, in the order of their dependencies.
TEST(ChakraRead, BreaksTiesByDependencies) {
  const auto gpu = [](std::uint64_t id, std::int64_t start) {
    return node(id, "k", kCompute).number("stream", 7).start(start);
  };
  const ChakraPlan in = read({trace({gpu(1, 100).on_data({3}), gpu(2, 100), gpu(3, 100), gpu(4, 50)})});
  EXPECT_EQ(lanes_of(in.plan), (std::vector<Tasks>{{3, 1, 2, 0}}));
  EXPECT_TRUE(
      says(error_of({trace({gpu(1, 100).on_data({3}), gpu(3, 101)})}), {"nodes 1 of rank 0 -> 3 of rank 0 -> 1 of"}));
}

TEST(ChakraRead, RefusesCircles) {
  EXPECT_TRUE(says(error_of({trace({node(3, "a", kCompute).on_data({7}), node(5, "b", kCompute),
                                    node(7, "c", kCompute).on_data({5}).after({3})})}),
                   {"run.0.et: nodes 3 -> 7 -> 3 depend on one another"}));
  EXPECT_TRUE(says(error_of({trace({}), trace({node(3, "a", kCompute).on_data({3})})}), {"run.1.et: nodes 3 -> 3 "}));
  std::vector<NodeBytes> ring;
  for (std::uint64_t i = 0; i < 20; ++i) ring.push_back(node(i, "n", kCompute).on_data({(i + 1) % 20}));
  EXPECT_TRUE(says(error_of({trace(ring)}), {"nodes 0 -> 1 -> 2 ", "-> (12 more) -> 0 depend"}));
  // Two collectives, the other way round on each.
  const auto ar = [](std::uint64_t id, std::string_view group) {
    return node(id, "ar", kCollective).collective(kAllReduce, 8).text("pg_name", group);
  };
  EXPECT_TRUE(
      says(error_of({trace({ar(1, "1"), ar(2, "2").on_data({1})}), trace({ar(1, "2"), ar(2, "1").on_data({1})})}),
           {"run.0.et: nodes 1 of rank 0 -> 2 of rank 1 -> 1 of rank 1 -> 2 of rank 0 -> 1 of rank 0 wait"}));
}

TEST(ChakraRead, RefusesWhatDoesNotFitTogether) {
  const auto send = [](std::int64_t tag, std::int64_t size) { return node(4, "s", kSend).message(0, 1, tag, size); };
  const auto recv = [](std::int64_t tag, std::int64_t size) { return node(5, "r", kRecv).message(0, 1, tag, size); };
  const auto ar = [](std::uint64_t id, std::int64_t size) { return node(id, "ar", kCollective).collective(0, size); };
  const std::string none = trace({});
  EXPECT_TRUE(
      says(error_of({trace({node(1, "a", kCompute).on_data({9})})}), {"run.0.et: node 1 'a'", "depends on node 9"}));
  EXPECT_TRUE(says(error_of({trace({send(0, 8)}), none}), {"run.0.et: node 4 's'", "tag 0", "run.1.et has no recv"}));
  EXPECT_TRUE(says(error_of({none, trace({recv(0, 8)})}), {"run.1.et: node 5 'r'", "run.0.et has no send"}));
  EXPECT_TRUE(says(error_of({trace({send(0, 8)}), trace({recv(1, 8)})}), {"a send to rank 1 with tag 0"}));
  EXPECT_TRUE(says(error_of({trace({send(0, 8)}), trace({recv(0, 9)})}),
                   {"run.0.et: node 4", "8 bytes", "run.1.et: node 5", "9"}));
  EXPECT_TRUE(says(error_of({trace({send(0, 8)})}), {"run.0.et: node 4", "rank 1, whose file is missing"}));
  EXPECT_TRUE(says(error_of({none, trace({send(0, 8)})}), {"run.1.et: node 4", "of rank 0 in the file of rank 1"}));
  EXPECT_TRUE(says(error_of({trace({ar(1, 8)}), trace({ar(2, 9)})}),
                   {"run.1.et: node 2", "all_reduce of 9 bytes", "run.0.et: node 1"}));
  EXPECT_TRUE(says(error_of({trace({ar(1, 8)}), none}), {"run.0.et: node 1", "run.1.et takes no part"}));
  EXPECT_TRUE(says(error_of({trace({ar(1, 8)}), trace({ar(1, 8), ar(2, 8)})}),
                   {"run.1.et: node 2", "number 2", "run.0.et has only 1"}));
  EXPECT_TRUE(says(error_of({trace({ar(1, 8), node(1, "b", kCompute)})}), {"run.0.et: node 1", "has its id"}));
  EXPECT_TRUE(says(error_of({trace({node(1, "s", kSend).number("comm_size", 8)})}), {"node 1 's'", "comm_dst"}));
  EXPECT_TRUE(says(error_of({trace({node(1, "c", kCollective).number("comm_size", 8)})}), {"node 1 'c'", "comm_type"}));
  EXPECT_TRUE(says(error_of({trace({node(1, "c", kCollective).number("comm_type", 256).number("comm_size", 8)})}),
                   {"comm_type"}));
  EXPECT_TRUE(says(error_of({trace({ar(1, std::int64_t{1} << 60)})}), {"node 1 'ar'", "1152921504606846976 bytes"}));
  EXPECT_TRUE(says(error_of({trace({node(6, "x", 42)})}), {"node 6 'x'", "no type 42"}));
  EXPECT_TRUE(
      says(error_of({trace({node(6, "x", kCompute).duration(-1)})}), {"node 6 'x'", "duration is out of range"}));
  EXPECT_TRUE(says(error_of({trace({ar(1, 8).attribute("involved_dim",
                                                       bytes_field(28, bytes_field(1, std::string("\x01\x00", 2))))})}),
                   {"node 1 'ar'", "involved_dim"}));
}

TEST(ChakraRead, RefusesOtherFiles) {
  const std::string good = trace({node(1, "a", kCompute)});
  EXPECT_TRUE(says(error_of({""}), {"run.0.et: it is empty"}));
  EXPECT_TRUE(says(error_of({"\x1f\x8b\x08zipped"}), {"run.0.et", "gunzip"}));
  EXPECT_TRUE(says(error_of({"{\"schema\": \"1.0\"}"}), {"run.0.et: byte 0", "no Chakra execution trace"}));
  EXPECT_TRUE(
      says(error_of({behind_length(node(1, "a", kCompute).bytes)}), {"run.0.et: byte 1", "wire type 0 instead of 2"}));
  EXPECT_TRUE(says(error_of({good + std::string(1, '\0')}), {"an empty node"}));
  // A file may end behind any message, and nowhere else.
  const std::size_t first_end = trace({}).size();
  for (std::size_t size = 1; size < good.size(); ++size) {
    if (size == first_end) continue;
    EXPECT_TRUE(says(error_of({good.substr(0, size)}), {"run.0.et: byte ", " are left", "damaged"})) << size;
  }
}

TEST(ChakraRead, FindsTheFilesOfAllRanks) {
  const TemporaryFolder folder;
  const std::string one = trace({node(1, "a", kCompute)});
  const auto path = [&](const char* name) { return folder.path() / name; };
  for (const char* name : {"run.0.et", "run.1.et", "run.10.et", "other.3.et", "run.01.et", "run.x.et", "runs.2.et"})
    folder.write(name, one);
  EXPECT_TRUE(
      says(user_error([&] { read_chakra(path("run")); }), {"run.2.et: it is missing", "3 files of ranks up to 10"}));
  EXPECT_TRUE(says(user_error([&] { read_chakra(path("none")); }), {"none.0.et: there is no such file"}));
  std::filesystem::remove(path("run.10.et"));
  EXPECT_EQ(read_chakra(path("run")).plan.graph.tasks.size(), 2u);
  EXPECT_EQ(read_chakra(path("run.1.et")).plan.lanes.size(), 2u);
}

// Whatever is done to good files, reading them ends well or with a user error.
TEST(ChakraRead, SurvivesDamage) {
  const std::vector<std::string> good = {
      trace({node(1, "a", kCompute).duration(5).flag("is_cpu_op", true).number("tid", 3),
             node(2, "s", kSend).message(0, 1, 0, 100).on_data({1}),
             node(3, "ar", kCollective).collective(0, 64).after({1}),
             node(4, "k", kCompute).number("stream", 7).on_data({2, 3}).start(90).number("num_ops", 50),
             node(5, "ag", kCollective).collective(2, 8).text("pg_name", "1").on_data({4})}),
      trace({node(1, "pg", kMetadata)
                 .add(bytes_field(8, bytes_field(1, "['[{\"pg_name\": \"1\", \"ranks\": [0, 1]}]']"))),
             node(2, "r", kRecv).message(0, 1, 0, 100), node(3, "ar", kCollective).collective(0, 64).on_data({2}),
             node(4, "m", kLoad).number("tensor_size", 512).on_data({3}),
             node(5, "ag", kCollective).collective(2, 8).text("pg_name", "1")})};
  EXPECT_EQ(read(good).plan.graph.tasks.size(), 10u);
  std::mt19937 random(20);
  std::size_t fine = 0;
  constexpr std::size_t tries = 20'000;
  for (std::size_t i = 0; i < tries; ++i) {
    try {
      read(damaged(good, random));
      ++fine;
    } catch (const UserError&) {
    }
  }
  EXPECT_GT(fine, tries / 100);
  EXPECT_LT(fine, tries * 9 / 10);
  // Noise, by itself and as the nodes of a file.
  for (std::size_t i = 0; i < tries / 4; ++i) {
    std::string noise = i % 2 == 0 ? "" : trace({});
    for (std::size_t length = random() % 60; length > 0; --length) noise += static_cast<char>(random());
    try {
      read({noise});
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace overtake
