// Cluster files: what they mean, that they print back, and what is said of mistakes.

#include "machine/cluster.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/philox.h"
#include "machine/cluster_units.h"
#include "sim_case.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

const std::string kGood = R"(# two nodes
cluster tiny
device gpu
  f32 = 1.5 TFLOP/s   # a comment
  bf16 = 3 TFLOP/s
  memory = 16 GiB
  memory_bandwidth = 900 GB/s
  sms = 80
node box x2
  devices = gpu x2
switch box/inner
switch tor
  reduction = push
  table = 8192
  entry = 128 B
  round_trip = 2.5 us
  fixed_cost = 10 us
  efficiency = 0.9
link box/gpu box/inner
  kind = NVLink
  bandwidth = 25 GB/s
  latency = 700 ns
link box/inner tor
  kind = Ethernet
  bandwidth = 25 Gb/s
  latency = 1.5 us
  oversubscription = 2
)";

TEST(Cluster, ReadsEveryField) {
  const Cluster c = parse_cluster(kGood, "tiny.cluster");
  EXPECT_EQ(c.name, "tiny");
  ASSERT_EQ(c.devices.size(), 1u);
  EXPECT_EQ(c.devices[0].f32_flops, 1'500'000'000'000);
  EXPECT_EQ(c.devices[0].tf32_flops, c.devices[0].f32_flops) << "as f32 where nothing is said";
  EXPECT_EQ(c.devices[0].bf16_flops, 3'000'000'000'000);
  EXPECT_EQ(c.devices[0].memory_bytes, std::int64_t{16} << 30);
  EXPECT_EQ(c.devices[0].memory_bandwidth, 900'000'000'000);
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
  const Topology t = make_topology(parse_cluster(kGood, "tiny.cluster"));
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
  std::vector<Cluster> clusters{parse_cluster(kGood, "tiny.cluster"), tests::small_cluster(3, 2)};
  for (const std::string& name : preset_names()) {
    clusters.push_back(load_cluster(name));
    clusters.push_back(load_cluster(name + ":3"));
    EXPECT_EQ(clusters.back().nodes[0].count, 3);
  }
  Cluster odd = clusters[0];
  odd.devices[0].profile = "runs/h200 profile.json";
  odd.devices[0].f32_flops = 1'234'567'890'123'456'789;
  odd.devices[0].memory_bytes = 16'000'000'001;
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
  EXPECT_EQ(load_cluster(folder.write("a.cluster", kGood).string()), parse_cluster(kGood, "x"));
}

TEST(Cluster, AMeasuredDeviceNeedsNoDescription) {
  const Cluster c = parse_cluster(
      "device d\n profile = runs/d.json\nnode n x2\n devices = d\nlink n/d tor\n kind = PCIe\n bandwidth = 1 GB/s\n"
      " latency = 0 ns\nswitch tor\n",
      "x");
  EXPECT_EQ(c.devices[0].profile, "runs/d.json");
  EXPECT_EQ(c.devices[0].f32_flops, 0);
  EXPECT_EQ(parse_cluster(save_cluster(c), "x"), c);
  EXPECT_NE(describe(c).find("device d: measured in runs/d.json"), std::string::npos);
}

// The example of the manual is right: the block after "## The file", four spaces taken off.
TEST(Cluster, TheExampleOfTheManual) {
  std::ifstream file(OVERTAKE_SOURCE_DIR "/docs/clusters.md");
  std::string line, text;
  while (std::getline(file, line) && line != "## The file") continue;
  while (std::getline(file, line) && (line.empty() || line.rfind("    ", 0) == 0))
    text += line.substr(std::min<std::size_t>(4, line.size())) + "\n";
  const Cluster c = parse_cluster(text, "docs/clusters.md");
  EXPECT_EQ(make_topology(c).device_count, 32u);
  EXPECT_EQ(make_topology(c).links.size(), 2u * (32 + 32 + 8));
}

TEST(Cluster, Units) {
  EXPECT_EQ(parse_quantity("989.4 TFLOP/s", Measure::flops), 989'400'000'000'000);
  EXPECT_EQ(parse_quantity("3 us", Measure::nanoseconds), 3000);
  EXPECT_EQ(parse_quantity("0.5ns", Measure::nanoseconds), 1) << "to the nearest";
  EXPECT_EQ(parse_quantity("10 Gb/s", Measure::bytes_per_s), 1'250'000'000);
  EXPECT_EQ(parse_quantity("1.25 GB/s", Measure::bits_per_s), 1'250'000'000);
  for (const char* wrong : {"", "GB/s", "-1 GB/s", "1e3 GB/s", "1 gb/s", "1 GB", "1..5 GB/s", "99999999999 TB/s"})
    EXPECT_FALSE(parse_quantity(wrong, Measure::bytes_per_s)) << wrong;
  EXPECT_EQ(print_quantity(3'125'000'000, Measure::bits_per_s), "25 Gb/s");
  EXPECT_EQ(print_quantity(16ll << 30, Measure::bytes), "16 GiB");
  EXPECT_EQ(print_quantity(80'000'000'000, Measure::bytes), "80 GB");
  EXPECT_EQ(print_quantity(1500, Measure::nanoseconds), "1.5 us");
  EXPECT_EQ(print_quantity(0, Measure::nanoseconds), "0 ns");
}

// kGood with one thing replaced.
std::string error_with(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return user_error([&] { parse_cluster(text, "my.cluster"); });
}

TEST(Cluster, MistakesAreNamedByFileLineAndField) {
  EXPECT_TRUE(says(error_with("sms = 80", "cores = 80"), {"my.cluster:8: ", "unknown key", "\"cores\"", "sms"}));
  EXPECT_TRUE(says(error_with("node box", "nodes box"), {"my.cluster:9: ", "unknown section", "\"nodes\"", "node"}));
  EXPECT_TRUE(says(error_with("25 GB/s", "25 GBps"), {"my.cluster:21: bandwidth: ", "\"25 GBps\"", "GB/s"}));
  EXPECT_TRUE(says(error_with("25 GB/s", "0 GB/s"), {"my.cluster:21: bandwidth: zero"}));
  EXPECT_TRUE(says(error_with("25 GB/s", "-5 GB/s"), {"my.cluster:21: bandwidth: ", "\"-5 GB/s\""}));
  EXPECT_TRUE(says(error_with("700 ns", "700"), {"my.cluster:22: latency: ", "ns, us, ms, s"}));
  EXPECT_TRUE(says(error_with("kind = NVLink", "kind = Thunderbolt"),
                   {"my.cluster:20: kind: ", "\"Thunderbolt\"", "NVLink, PCIe, Ethernet, InfiniBand"}));
  EXPECT_TRUE(says(error_with("reduction = push", "reduction = yes"), {"my.cluster:13: reduction: ", "push, pull"}));
  EXPECT_TRUE(
      says(error_with("efficiency = 0.9", "efficiency = 1.9"), {"my.cluster:18: efficiency: ", "from 0.001 to 1"}));
  EXPECT_TRUE(says(error_with("  table = 8192\n", ""), {"my.cluster:12: table: missing"}));
  EXPECT_TRUE(says(error_with("  f32 = 1.5 TFLOP/s   # a comment\n", ""), {"my.cluster:3: f32: missing"}));
  EXPECT_TRUE(says(error_with("sms = 80", "sms = 80\n  sms = 81"), {"my.cluster:9: sms: given twice"}));
  EXPECT_TRUE(says(error_with("sms = 80", "sms = many"), {"my.cluster:8: sms: not a count: \"many\""}));
  EXPECT_TRUE(says(error_with("switch tor", "switch box/inner"), {"my.cluster:12: duplicate name: \"box/inner\""}));
  EXPECT_TRUE(says(error_with("gpu x2", "gpu x2, gpu x1"), {"my.cluster:9: duplicate name: \"box/gpu\""}));
  EXPECT_TRUE(says(error_with("gpu x2", "tpu x2"), {"my.cluster:9: devices: unknown device: \"tpu\""}));
  EXPECT_TRUE(says(error_with("gpu x2", "gpu times 2"), {"my.cluster:10: devices: ", "gpu x8"}));
  EXPECT_TRUE(says(error_with("node box x2", "node box x0"), {"my.cluster:9: node: ", "node NAME x4"}));
  EXPECT_TRUE(
      says(error_with("switch box/inner", "switch bax/inner"), {"my.cluster:11: switch: unknown node: \"bax\""}));
  EXPECT_TRUE(
      says(error_with("link box/inner tor", "link box/inner top"), {"my.cluster:23: link: unknown end: \"top\""}));
  EXPECT_TRUE(says(error_with("link box/gpu box/inner", "link box/gpu.2 box/inner"),
                   {"my.cluster:19: link: index out of range: \"box/gpu.2\"", "there are 2"}));
  EXPECT_TRUE(says(error_with("link box/inner tor", "link box/inner"), {"my.cluster:23: link: not two ends"}));
  EXPECT_TRUE(says(error_with("cluster tiny", "x = 1"), {"my.cluster:2: x: a key before the first section"}));
  EXPECT_TRUE(says(user_error([] { parse_cluster("", "my.cluster"); }), {"my.cluster:1: node: no section"}));
  EXPECT_TRUE(says(error_with("gpu x2", "gpu x1048576"), {"my.cluster:", "too large"}));
}

// Whatever is in a file: a cluster, or a user error that names the file.
TEST(Cluster, DamagedFiles) {
  std::uint32_t counter = 0;
  const auto random = [&](std::size_t below) { return philox({9, 9}, counter++, 0)[0] % below; };
  const std::string marks = "\n =#x/.0-,\t9Kz";
  int errors = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = kGood;
    for (std::size_t changes = 1 + random(4); changes > 0; --changes) {
      const std::size_t at = random(text.size());
      switch (random(3)) {
        case 0:
          text[at] = marks[random(marks.size())];
          break;
        case 1:
          text.erase(at, 1 + random(20));
          break;
        default:
          text.insert(at, text.substr(random(text.size()), random(30)));
      }
    }
    try {
      const Cluster c = parse_cluster(text, "my.cluster");
      EXPECT_EQ(parse_cluster(save_cluster(c), "again"), c) << text;
    } catch (const UserError& error) {
      ++errors;
      EXPECT_EQ(std::string(error.what()).rfind("my.cluster:", 0), 0u) << error.what();
    }
  }
  EXPECT_GT(errors, 1000);
}

TEST(Cluster, AMissingLinkIsNamed) {
  EXPECT_TRUE(says(error_with("link box/gpu box/inner", "link box/gpu.0 box/inner"),
                   {"my.cluster:9: link: missing: ", "box.0/gpu.0 cannot reach box.0/gpu.1"}));
  std::string text = kGood;
  text.resize(text.find("link box/inner tor"));
  EXPECT_TRUE(says(user_error([&] { parse_cluster(text, "my.cluster"); }),
                   {"my.cluster:9: link: missing: ", "box.0/gpu.0 cannot reach box.1/gpu.0"}));
}

TEST(Cluster, UnknownPresetsAndCounts) {
  EXPECT_TRUE(
      says(user_error([] { load_cluster("dgx-h300"); }), {"cluster: ", "\"dgx-h300\"", "dgx-h100", "cpu-hosts"}));
  EXPECT_TRUE(says(user_error([] { load_cluster("dgx-h100:0"); }), {"cluster: ", "\"dgx-h100:0\"", "dgx-h100:4"}));
  EXPECT_TRUE(says(user_error([] { load_cluster("dgx-h100:many"); }), {"number of nodes"}));
  EXPECT_TRUE(says(user_error([] { load_cluster("none/such.cluster"); }), {"none/such.cluster", "cannot read"}));
}

}  // namespace
}  // namespace overtake
