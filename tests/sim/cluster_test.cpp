// Machine files: what they mean, and that they print back.

#include "overtake/cluster.h"

#include <gtest/gtest.h>

#include <fstream>

#include "sim_case.h"
#include "tiny_machine.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using tests::kTinyMachine;

TEST(Cluster, ReadsEveryField) {
  const Cluster c = parse_cluster(kTinyMachine, "tiny.toml");
  EXPECT_EQ(c.name, "tiny");
  ASSERT_EQ(c.devices.size(), 1u);
  EXPECT_EQ(c.devices[0].f32_flops, 1'500'000'000'000);
  EXPECT_EQ(c.devices[0].tf32_flops, c.devices[0].f32_flops) << "as f32 where nothing is said";
  EXPECT_EQ(c.devices[0].bf16_flops, 3'000'000'000'000);
  ASSERT_EQ(c.devices[0].memories.size(), 1u);
  EXPECT_EQ(c.devices[0].memories[0].name, "HBM");
  EXPECT_EQ(c.devices[0].memory_bytes(), std::int64_t{16} << 30);
  EXPECT_EQ(c.devices[0].memory_bytes_per_s(), 900'000'000'000);
  EXPECT_EQ(c.devices[0].sms, 80);
  const Reduction& r = c.switches[1].reduction;
  EXPECT_EQ(r.mode, ReductionMode::push);
  EXPECT_EQ(r.entries, 8192);
  EXPECT_EQ(r.entry_bytes, 128);
  EXPECT_EQ(r.round_trip_ns, 2500);
  EXPECT_EQ(r.fixed_ns, 10000);
  EXPECT_EQ(r.efficiency, 0.9);
  EXPECT_EQ(c.links[1].bandwidth, 3'125'000'000);
  EXPECT_EQ(c.links[1].latency_ns, 1500);
}

TEST(Cluster, BecomesATopology) {
  const Topology t = make_topology(parse_cluster(kTinyMachine, "tiny.toml"));
  EXPECT_EQ(t.device_count, 4u);
  EXPECT_EQ(t.node_count, 2u);
  ASSERT_EQ(t.vertices.size(), 4u + 2 + 1);
  EXPECT_EQ(t.vertices[3].name, "box.1/gpu.1");
  EXPECT_EQ(t.vertices[3].node, 1u);
  EXPECT_EQ(t.vertices[6].name, "tor.0");
  EXPECT_EQ(t.vertices[6].node, kNone);
  ASSERT_EQ(t.links.size(), 2u * (4 + 2));
  EXPECT_EQ(t.links[0].bandwidth, 25'000'000'000);
  EXPECT_EQ(t.links[8].bandwidth, 3'125'000'000 / 2) << "oversubscribed";
  for (std::size_t l = 0; l < t.links.size(); l += 2) {
    EXPECT_EQ(t.links[l].from, t.links[l + 1].to);
    EXPECT_EQ(t.links[l].to, t.links[l + 1].from);
  }
}

TEST(Cluster, PrintsBack) {
  std::vector<Cluster> clusters{parse_cluster(kTinyMachine, "tiny.toml"), tests::small_cluster(3, 2)};
  for (const std::string& name : preset_names()) {
    clusters.push_back(load_cluster(name));
    clusters.push_back(load_cluster(name + ":3"));
    EXPECT_EQ(clusters.back().nodes[0].count, 3);
  }
  Cluster odd = clusters[0];
  odd.devices[0].profile = "runs/h200 profile.json";
  odd.devices[0].f32_flops = 1'234'567'890'123'456'789;
  odd.name = "a \"name\" with \\, \t, \x01 and \u00e4";
  odd.devices[0].memories = {{.name = "HBM \"3\"", .bytes = 16'000'000'001, .bytes_per_s = 900'000'000'001},
                             {.name = "", .bytes = 50 << 20, .bytes_per_s = 0},
                             {}};
  odd.devices[0].communication = {.sms = 3, .in_network_sms = 2, .memory_factor = 1e-9, .in_network_memory_factor = 0};
  odd.links[0].bandwidth = 7;
  odd.links[1].bandwidth = 1'234'567'891;
  odd.links[1].latency_ns = 1'000'000'007;
  odd.links[0].oversubscription = 1.1;
  clusters.push_back(odd);
  for (const Cluster& c : clusters) EXPECT_EQ(parse_cluster(save_cluster(c), c.name), c) << save_cluster(c);
}

TEST(Cluster, PresetsAreWhatTheyAreCalled) {
  const auto count = [](const std::string& name) { return make_topology(load_cluster(name)).device_count; };
  EXPECT_EQ(count("p3.8xlarge:4"), 16u);
  EXPECT_EQ(count("p3.16xlarge"), 8u);
  EXPECT_EQ(count("dgx-a100:2"), 16u);
  EXPECT_EQ(count("dgx-h100:128"), 1024u);
  EXPECT_EQ(count("dgx-h200"), 8u);
  EXPECT_EQ(count("h200"), 1u);
  EXPECT_EQ(count("gb200-nvl72"), 72u);
  EXPECT_EQ(count("gb200-nvl72:8"), 576u);
  EXPECT_EQ(count("tpu-v4"), 64u);
  EXPECT_EQ(count("tpu-v5p:2240"), 8960u);
  EXPECT_EQ(count("cpu-hosts"), 2u);
  // Six NVLinks of 25 GB/s on every V100 of the larger, and those among four on the smaller.
  const Topology t = make_topology(load_cluster("p3.16xlarge"));
  std::vector<std::int64_t> out(8, 0);
  for (const DirectedLink& l : t.links)
    if (l.kind == LinkKind::nvlink) out[l.from] += l.bandwidth;
  for (const std::int64_t sum : out) EXPECT_EQ(sum, 150'000'000'000);
  EXPECT_NE(describe(load_cluster("dgx-h100:4")).find("dgx-h100: 4 nodes, 32 devices"), std::string::npos);
  EXPECT_NE(describe(load_cluster("dgx-h100")).find("InfiniBand 400 Gb/s each way, 1 us, by rail"), std::string::npos)
      << describe(load_cluster("dgx-h100"));
}

TEST(Cluster, LoadsFiles) {
  const TemporaryFolder folder;
  EXPECT_EQ(load_cluster(folder.write("a.toml", kTinyMachine).string()), parse_cluster(kTinyMachine, "x"));
}

TEST(Cluster, AMeasuredDeviceNeedsNoDescription) {
  const Cluster c = parse_cluster(R"([device.d]
profile = "runs/d.json"
[node.n]
count = 2
devices = { d = 1 }
[[link]]
between = ["n/d", "tor"]
kind = "PCIe"
bandwidth = "1 GB/s"
latency = "0 ns"
[switch.tor]
)",
                                  "x");
  EXPECT_EQ(c.devices[0].profile, "runs/d.json");
  EXPECT_EQ(c.devices[0].f32_flops, 0);
  EXPECT_EQ(c.devices[0].memory_bytes(), 0);
  EXPECT_EQ(parse_cluster(save_cluster(c), "x"), c);
  EXPECT_NE(describe(c).find("device d: measured in runs/d.json"), std::string::npos);
}

TEST(Cluster, MemoriesInLevels) {
  std::string text = kTinyMachine;
  const std::string one = R"(memory = [{ name = "HBM", capacity = "16 GiB", bandwidth = "900 GB/s" }])";
  text.replace(text.find(one), one.size(), R"(memory = [
  { name = "HBM", capacity = "16 GiB", bandwidth = "900 GB/s" },
  { name = "L2", capacity = "50 MiB", bandwidth = "5.5 TB/s" },
  { capacity = "33 MB", bandwidth = 33_000_000_000_000 },
])");
  const Cluster c = parse_cluster(text, "levels.toml");
  const std::vector<MemoryLevel> expected{
      {.name = "HBM", .bytes = std::int64_t{16} << 30, .bytes_per_s = 900'000'000'000},
      {.name = "L2", .bytes = 50 << 20, .bytes_per_s = 5'500'000'000'000},
      {.name = "", .bytes = 33'000'000, .bytes_per_s = 33'000'000'000'000}};
  EXPECT_EQ(c.devices[0].memories, expected);
  EXPECT_EQ(c.devices[0].memory_bytes(), std::int64_t{16} << 30) << "of the outermost";
  EXPECT_EQ(c.devices[0].memory_bytes_per_s(), 900'000'000'000);
  EXPECT_EQ(parse_cluster(save_cluster(c), "again"), c) << save_cluster(c);
  EXPECT_NE(describe(c).find("HBM 16 GiB at 900 GB/s; L2 50 MiB at 5.5 TB/s; 33 MB at 33 TB/s; 80 SMs"),
            std::string::npos)
      << describe(c);
  // As sections of their own, which is the same in TOML.
  text = kTinyMachine;
  text.replace(text.find(one), one.size(), R"([[device.gpu.memory]]
capacity = "1 GB"
bandwidth = "1 GB/s"
[[device.gpu.memory]]
name = "L2"
capacity = 5
bandwidth = "8 b/s"
[device.other]
f32 = 1
memory = [{ capacity = 1, bandwidth = 1 }])");
  EXPECT_EQ(parse_cluster(text, "x").devices[0].memories,
            (std::vector<MemoryLevel>{{.name = "", .bytes = 1'000'000'000, .bytes_per_s = 1'000'000'000},
                                      {.name = "L2", .bytes = 5, .bytes_per_s = 1}}));
}

// Devices are numbered as the file has them, not by name; switches of nodes and of the cluster alike.
TEST(Cluster, TheOrderOfTheFileCounts) {
  const Cluster c = parse_cluster(R"([switch.z]
[node.y]
devices = { q = 1, b = 2 }
[node.y.switch.x]
[switch.c]
[node.a]
devices = { b = 1 }
[device.q]
f32 = 1
memory = [{ capacity = 1, bandwidth = 1 }]
[device.b]
f32 = 1
memory = [{ capacity = 1, bandwidth = 1 }]
[node.a.switch.x]
[[link]]
between = [["y/q", "z"], ["a/b", "z"], ["y/b", "z"]]
kind = "PCIe"
bandwidth = 7
latency = 0
)",
                                  "order");
  const Topology t = make_topology(c);
  std::vector<std::string> names;
  for (const Vertex& v : t.vertices) names.push_back(v.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"y.0/q.0", "y.0/b.0", "y.0/b.1", "a.0/b.0", "z.0", "y.0/x.0", "c.0", "a.0/x.0"}));
  EXPECT_EQ(c.devices[0].name, "q");
  ASSERT_EQ(c.links.size(), 3u);
  EXPECT_EQ(c.links[1].from.node, "a");
  EXPECT_EQ(c.links[2].bandwidth, 7) << "whole numbers are base units";
  EXPECT_EQ(parse_cluster(save_cluster(c), "again"), c) << save_cluster(c);
}

// The example of the manual is right: the block after "## The file", four spaces taken off.
std::string example_of_the_manual(const std::string& heading) {
  std::ifstream file(OVERTAKE_SOURCE_DIR "/docs/machines.md");
  std::string line, text;
  while (std::getline(file, line) && line != heading) continue;
  while (std::getline(file, line) && line.rfind("    ", 0) != 0) continue;
  do {
    text += line.substr(std::min<std::size_t>(4, line.size())) + "\n";
  } while (std::getline(file, line) && (line.empty() || line.rfind("    ", 0) == 0));
  return text;
}

TEST(Cluster, TheExampleOfTheManual) {
  const Cluster c = parse_cluster(example_of_the_manual("## The file"), "docs/machines.md");
  EXPECT_EQ(make_topology(c).device_count, 32u);
  EXPECT_EQ(make_topology(c).links.size(), 2u * (32 + 32 + 8));
}

// Four boxes to a leaf, each leaf to both spines. The four boxes of a leaf, of 50 GB/s each, send to boxes of another
// and have 100 GB/s up; inside of a leaf each has all of its link.
TEST(Cluster, AFatTreeIsNarrowAtItsTop) {
  const Cluster c = parse_cluster(example_of_the_manual("### Fat trees"), "docs/machines.md");
  const Topology t = make_topology(c);
  ASSERT_EQ(t.device_count, 64u);
  ASSERT_EQ(t.links.size(), 2u * (64 + 16 + 8));
  Router router(t);
  for (std::uint32_t box = 0; box < 16; ++box) {
    const std::vector<std::uint32_t> way = router.route(4 * box, 4 * ((box + 1) % 16));
    ASSERT_EQ(way.size(), box % 4 == 3 ? 6u : 4u) << "over a spine at the end of each block";
    EXPECT_EQ(t.vertices[t.links[way[1]].to].name, fmt::format("leaf.{}", box / 4));
  }
  tests::Simulation s(c);
  FlowNetwork& network = s.network;
  Paths paths(s.topology, network);
  std::vector<FlowId> across;
  for (std::uint32_t box = 0; box < 4; ++box)
    across.push_back(network.start(0, paths.between(4 * box, 4 * (box + 4)), 1 << 30, {}));
  const FlowId inside = network.start(0, paths.between(32, 36), 1 << 30, {});
  double sum = 0;
  for (const FlowId f : across) sum += network.flow_rate(f);
  EXPECT_LE(sum, 100e9 * (1 + 1e-9)) << "half of what four boxes have";
  EXPECT_DOUBLE_EQ(network.flow_rate(inside), 50e9);
  EXPECT_EQ(parse_cluster(save_cluster(c), "again"), c);
}

TEST(Cluster, BlocksJoinNodesToSwitches) {
  const auto error = [](const std::string& between) {
    return user_error([&] {
      parse_cluster(std::string(kTinyMachine) + "[[link]]\nbetween = " + between +
                        "\nwiring = \"block\"\nkind = \"PCIe\"\nbandwidth = 1\nlatency = 1\n",
                    "x");
    });
  };
  EXPECT_TRUE(says(error(R"(["box/gpu", "box/gpu"])"), {"wiring \"block\"", "joins nodes to switches outside"}));
}

}  // namespace
}  // namespace overtake
