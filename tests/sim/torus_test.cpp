// Tori: their links, ways through them, and collectives against closed forms, to the nanosecond.

#include <gtest/gtest.h>

#include <numeric>

#include "overtake/machine.h"
#include "sim_case.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using tests::Simulation;

constexpr std::int64_t kLatency = 1000, kRate = 10;  // ns, bytes/ns

// Hosts of one device. `keys` are of the torus, such as "shape = [4, 4]".
Cluster torus_cluster(int devices, const std::string& keys, const std::string& more = "") {
  return parse_cluster(fmt::format(R"([device.d]
f32 = "1 TFLOP/s"
memory = [{{ capacity = "1 GB", bandwidth = "1000 GB/s" }}]
[node.n]
count = {}
devices = {{ d = 1 }}
[[torus]]
devices = "n/d"
{}
kind = "ICI"
bandwidth = "10 GB/s"
latency = "1 us"
{})",
                                   devices, keys, more),
                       "test");
}

CollectiveSpec by_torus(GroupId group, std::int64_t bytes, Operation operation = Operation::all_reduce) {
  return {.group = group,
          .operation = operation,
          .bytes = bytes,
          .algorithm = Algorithm::torus,
          .protocol = Protocol::ideal};
}

TEST(Torus, HasALinkToEachNeighbour) {
  for (const auto& [keys, devices, cables] : {std::tuple{"shape = [8]", 8, 8},
                                              {"shape = [4, 4]", 16, 32},
                                              {"shape = [4, 4, 4]", 64, 192},
                                              {"shape = [2, 4]", 8, 4 + 8},  // two next to each other: one cable
                                              {"shape = [1, 4]", 4, 4},
                                              {"dimensions = 2", 12, 24}}) {
    const Topology t = make_topology(torus_cluster(devices, keys));
    EXPECT_EQ(std::ssize(t.links), 2 * cables) << keys;
    std::vector<int> out(static_cast<std::size_t>(devices), 0);
    for (const DirectedLink& l : t.links) ++out[l.from];
    for (const int degree : out) EXPECT_EQ(degree, 2 * cables / devices) << keys;
  }
}

TEST(Torus, IsAsEqualAsItsNumberAllows) {
  const auto shape = [](std::int64_t devices, std::int32_t dimensions) {
    return shape_of({.devices = {}, .dimensions = dimensions}, devices);
  };
  using Shape = std::vector<std::int32_t>;
  EXPECT_EQ(shape(64, 3), (Shape{4, 4, 4}));
  EXPECT_EQ(shape(128, 3), (Shape{4, 4, 8}));
  EXPECT_EQ(shape(256, 3), (Shape{4, 8, 8}));
  EXPECT_EQ(shape(4096, 3), (Shape{16, 16, 16}));
  EXPECT_EQ(shape(6144, 3), (Shape{16, 16, 24}));
  EXPECT_EQ(shape(8960, 3), (Shape{16, 20, 28}));
  EXPECT_EQ(shape(16, 2), (Shape{4, 4}));
  EXPECT_EQ(shape(7, 3), (Shape{1, 1, 7}));
  EXPECT_EQ(shape(12, 1), (Shape{12}));
}

// One dimension after the other, the shorter way round each; the links of a way join up.
TEST(Torus, WaysAreTheShortest) {
  const std::vector<std::uint32_t> sizes{3, 4, 5};
  const Topology t = make_topology(torus_cluster(60, "shape = [3, 4, 5]"));
  Router router(t);
  for (std::uint32_t from = 0; from < 60; ++from)
    for (std::uint32_t to = 0; to < 60; ++to) {
      std::size_t distance = 0;
      for (std::uint32_t d = 0, stride = 60; d < 3; ++d) {
        stride /= sizes[d];
        const std::uint32_t ahead = (to / stride % sizes[d] + sizes[d] - from / stride % sizes[d]) % sizes[d];
        distance += std::min(ahead, sizes[d] - ahead);
      }
      const std::vector<std::uint32_t> links = router.route(from, to);
      EXPECT_EQ(links.size(), distance) << from << " " << to;
      std::uint32_t at = from;
      for (const std::uint32_t l : links) {
        EXPECT_EQ(t.links[l].from, at);
        at = t.links[l].to;
      }
      EXPECT_EQ(at, to);
    }
}

// Two parts per dimension; along each dimension k - 1 steps of what is left, there and back.
TEST(Torus, AllReduceTakesItsSteps) {
  for (const auto& [keys, k, dimensions] : {std::tuple{"shape = [8]", 8, 1},
                                            {"shape = [4, 4]", 4, 2},
                                            {"shape = [3, 3, 3]", 3, 3},
                                            {"shape = [5]", 5, 1}}) {
    int devices = 1;
    for (int d = 0; d < dimensions; ++d) devices *= k;
    const std::int64_t bytes = std::int64_t{2} * dimensions * devices * kRate * 700;
    std::int64_t half = 0, left = bytes / (2 * dimensions);
    for (int d = 0; d < dimensions; ++d) {
      left /= k;
      half += (k - 1) * (kLatency + left / kRate);
    }
    for (const auto& [operation, expected] : {std::pair{Operation::all_reduce, 2 * half},
                                              {Operation::reduce_scatter, half},
                                              {Operation::all_gather, half}}) {
      Simulation s(torus_cluster(devices, keys));
      const GroupId group = s.all();
      EXPECT_EQ(s.time_of(by_torus(group, bytes, operation)), expected) << keys << " " << to_string(operation);
      EXPECT_EQ(predict_ns(s.collectives.group(group), operation, Algorithm::torus, Protocol::ideal, bytes), expected);
    }
  }
}

// Every link carries as much: twice the bytes but for an n-th, over six links of each chip.
TEST(Torus, AllReduceUsesAllLinksAlike) {
  Simulation s(torus_cluster(64, "shape = [4, 4, 4]"));
  const std::int64_t bytes = 6 * 64 * 1000;
  s.time_of(by_torus(s.all(), bytes));
  for (LinkId l = 0; l < s.topology.links.size(); ++l) EXPECT_EQ(s.network.link_bytes(l), 2 * bytes * 63 / 64 / 6) << l;
}

// Odd sizes lose and make up no byte.
TEST(Torus, NoByteIsLost) {
  Simulation s(torus_cluster(9, "shape = [3, 3]"));
  s.time_of(by_torus(s.all(), 1'000'003));
  std::int64_t sum = 0;
  for (std::uint32_t d = 0; d < 9; ++d) sum += s.sent(d);
  EXPECT_EQ(sum, 2 * 8 * 1'000'003);
}

// Parts meet where dimensions are of different sizes; the formula knows nothing of that.
TEST(Torus, UnequalDimensionsAreNearTheFormula) {
  for (const char* keys : {"shape = [2, 4, 8]", "shape = [4, 16]", "shape = [2, 32]"}) {
    Simulation s(torus_cluster(64, keys));
    const GroupId group = s.all();
    const std::int64_t bytes = 64 << 20;
    const auto predicted = static_cast<double>(
        predict_ns(s.collectives.group(group), Operation::all_reduce, Algorithm::torus, Protocol::ideal, bytes));
    const double ratio = static_cast<double>(s.time_of(by_torus(group, bytes))) / predicted;
    EXPECT_GE(ratio, 1) << keys;
    EXPECT_LT(ratio, 1.34) << keys;
  }
}

// Stages of a pipeline and their replicas: lines, planes, and every second device are tori, others are not.
TEST(Torus, GroupsInsideAreTori) {
  Simulation s(torus_cluster(64, "shape = [4, 4, 4]"));
  const auto group = [&](std::vector<std::uint32_t> devices) -> const DeviceGroup& {
    return s.collectives.group(s.collectives.add_group(std::move(devices)));
  };
  std::vector<std::uint32_t> plane, every_second;
  for (std::uint32_t d = 0; d < 64; ++d) {
    if (d % 4 == 3) plane.push_back(d);
    if (d % 2 == 0) every_second.push_back(d);
  }
  ASSERT_TRUE(group(plane).torus);
  EXPECT_EQ(group(plane).torus->sizes, (std::vector<std::uint32_t>{4, 4}));
  ASSERT_TRUE(group(every_second).torus);
  EXPECT_EQ(group(every_second).torus->sizes, (std::vector<std::uint32_t>{4, 4, 2}));
  EXPECT_EQ(group(every_second).torus->hops[2].latency_ns, 2 * kLatency);
  ASSERT_TRUE(group({8, 0, 12, 4}).torus) << "in any order";
  EXPECT_FALSE(group({0, 1, 2}).torus) << "three of four in a line";
  EXPECT_FALSE(group({0, 1, 4}).torus) << "no rectangle";
  const GroupId odd = s.collectives.add_group({0, 1, 4});
  EXPECT_TRUE(
      says(user_error([&] { s.collectives.add(by_torus(odd, 8)); }), {"torus cannot do all-reduce", "no torus"}));
  EXPECT_GT(s.time_of({.group = odd, .bytes = 1000}), 0) << "rings are always there";
}

// The automatic choice: no constants of NCCL between chips that it does not know.
TEST(Torus, TpusChooseIt) {
  Simulation s(load_cluster("tpu-v4"));
  const GroupId group = s.all();
  const CollectiveId id = s.collectives.add({.group = group, .bytes = 1 << 30});
  EXPECT_EQ(s.collectives.choice(id).algorithm, Algorithm::torus);
  s.collectives.ready_all(0, id);
  // Six links of 45 GB/s carry 2 GiB but for a 64th, and 18 hops of 1 us.
  EXPECT_NEAR(static_cast<double>(s.run()), 2.0 * (1 << 30) * 63 / 64 / (6 * 45) + 18'000, 100);
}

// All links carry the same where all send to all: an eighth of the bytes for each place along a dimension.
TEST(Torus, AllToAllIsBoundByItsLinks) {
  Simulation s(torus_cluster(64, "shape = [4, 4, 4]"));
  const std::int64_t bytes = 64 << 20;
  const CollectiveId id = s.collectives.add(
      {.group = s.all(), .operation = Operation::all_to_all, .bytes = bytes, .protocol = Protocol::ideal});
  const double floor = static_cast<double>(bytes) * 4 / 8 / kRate;
  EXPECT_NEAR(static_cast<double>(s.collectives.choice(id).predicted_ns), floor + 2 * 6 * kLatency, 1000);
  s.collectives.ready_all(0, id);
  const auto time = static_cast<double>(s.run());
  EXPECT_GE(time, floor);
  EXPECT_LT(time, 2 * floor) << "messages of a round use some links more than others";
}

// Slices joined by a network: each chip has a way out of its own.
TEST(Torus, SlicesAreJoinedBySwitches) {
  const Cluster c = parse_cluster(R"([device.d]
f32 = 1
memory = [{ capacity = 1, bandwidth = 1 }]
[node.a]
count = 4
devices = { d = 1 }
[node.b]
count = 4
devices = { d = 1 }
[switch.dcn]
[[link]]
between = [["a/d", "dcn"], ["b/d", "dcn"]]
kind = "Ethernet"
bandwidth = "6 GB/s"
latency = "10 us"
[[torus]]
devices = "a/d"
shape = [4]
kind = "ICI"
bandwidth = "10 GB/s"
latency = "1 us"
[[torus]]
devices = "b/d"
shape = [2, 2]
kind = "ICI"
bandwidth = "10 GB/s"
latency = "1 us"
)",
                                  "slices");
  const Topology t = make_topology(c);
  Router router(t);
  EXPECT_EQ(router.route(0, 2).size(), 2u) << "inside, not over the switch";
  EXPECT_EQ(t.links[router.route(0, 2)[0]].kind, LinkKind::ici);
  ASSERT_EQ(router.route(1, 6).size(), 2u);
  EXPECT_EQ(t.links[router.route(1, 6)[0]].kind, LinkKind::ethernet);
  EXPECT_EQ(parse_cluster(save_cluster(c), "again"), c) << save_cluster(c);
  EXPECT_NE(describe(c).find("torus of b/d: 2 x 2, ICI 10 GB/s each way to each neighbour, 1 us"), std::string::npos)
      << describe(c);
}

TEST(Torus, MistakesAreTheUsers) {
  const auto error = [](int devices, const std::string& keys, const std::string& more = "") {
    return user_error([&] { torus_cluster(devices, keys, more); });
  };
  const std::string second = "[[torus]]\ndevices = \"n/d\"\nkind = \"ICI\"\nbandwidth = 1\nlatency = 1\n";
  EXPECT_TRUE(says(error(8, "shape = [4, 4]"), {"test:7: torus: shape 4 x 4 has 16 places", "8 of n/d"}));
  EXPECT_TRUE(says(error(8, "shape = []"), {"shape: not sizes"}));
  EXPECT_TRUE(says(error(8, "shape = [0, 8]"), {"shape: not a count: 0"}));
  EXPECT_TRUE(says(error(8, "shape = [2, 2, 2, 1, 1, 1, 1]"), {"7 dimensions; at most 6"}));
  EXPECT_TRUE(says(error(8, "dimensions = 7"), {"7 dimensions"}));
  EXPECT_TRUE(says(error(8, "shape = [8]", second), {"in another torus already"}));
  EXPECT_TRUE(says(error(1'000'000, "dimensions = 6"), {"torus: too many links: 6000000"}));
  EXPECT_TRUE(says(error(8, "shapes = [8]"), {"unknown key in [[torus]]", "did you mean shape?"}));
  EXPECT_TRUE(says(error(8, "", "[[torus]]\ndevices = \"n/e\"\nkind = \"ICI\"\nbandwidth = 1\nlatency = 1\n"),
                   {"torus: no devices: \"n/e\""}));
  EXPECT_TRUE(says(error(8, "", "[[torus]]\ndevices = 5\nkind = \"ICI\"\nbandwidth = 1\nlatency = 1\n"),
                   {"devices: not devices: 5"}));
  EXPECT_TRUE(says(user_error([] { parse_cluster("torus = 5", "x"); }), {"x:1: torus: not a list of tori"}));
}

// As plans keep their machines.
TEST(Torus, MachinesAsText) {
  Cluster cluster = load_cluster("tpu-v4");
  cluster.network = NetworkKind::ideal;
  cluster.tori[0].shape = {2, 4, 8};
  const std::string text = save_json(described_machine(cluster));
  const Machine again = load_machine_json(text);
  EXPECT_EQ(again.cluster, cluster);
  EXPECT_EQ(again.topology.tori.at(0).shape, (std::vector<std::uint32_t>{2, 4, 8}));
  EXPECT_EQ(again.topology.links.at(0).latency_ns, 0) << "of an ideal network";
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const std::size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    return user_error([&] { load_machine_json(other.replace(at, from.size(), to)); });
  };
  EXPECT_TRUE(
      says(damaged("\"dimensions\":3", "\"dimensions\":0"), {"0 of the dimensions of a torus", "save it again"}));
  EXPECT_TRUE(says(damaged("[2,4,8]", "[2,-4,8]"), {"-4 of the devices along a torus"}));
  EXPECT_TRUE(says(damaged("\"bandwidth\":45000000000", "\"bandwidth\":0"), {"a torus of 0 B/s"}));
  EXPECT_TRUE(says(damaged("[2,4,8]", "[2,4,4]"), {"shape 2 x 4 x 4 has 32 places"}));
}

TEST(Torus, PresetsScaleWithTheirHosts) {
  for (const auto& [name, text] :
       {std::pair{"tpu-v4", "4 x 4 x 4"}, {"tpu-v4:1024", "16 x 16 x 16"}, {"tpu-v5p:2240", "16 x 20 x 28"}})
    EXPECT_NE(describe(load_cluster(name)).find(text), std::string::npos) << describe(load_cluster(name));
}

}  // namespace
}  // namespace overtake
