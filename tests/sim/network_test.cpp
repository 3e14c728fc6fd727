// Shares and times of flows: by hand, and against water filling over everything in doubles.

#include "sim/network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/philox.h"
#include "sim/routing.h"
#include "sim_case.h"

namespace overtake {
namespace {

// Links with these bandwidths, GB/s (bytes/ns), and no latency.
std::vector<DirectedLink> links(std::initializer_list<double> gigabytes, std::int64_t latency = 0) {
  std::vector<DirectedLink> list;
  for (const double g : gigabytes) list.push_back({0, 1, LinkKind::ethernet, std::llround(g * 1e9), latency});
  return list;
}

// Runs to the end: tag -> time of arrival.
std::map<std::uint64_t, std::int64_t> arrivals(FlowNetwork& network) {
  std::map<std::uint64_t, std::int64_t> times;
  while (network.next_time() != kNever) {
    const std::int64_t now = network.next_time();
    for (const FlowReport& r : network.advance(now))
      if (r.progress != FlowProgress::sent) times[r.tag] = now;
  }
  return times;
}

TEST(FlowNetwork, OneFlowTakesLatencyAndBytesOverBandwidth) {
  FlowNetwork network(links({10, 5}, 100));
  network.start(50, network.add_path({0, 1}), 5000, {.tag = 7});
  EXPECT_EQ(network.next_time(), 50 + 1000);
  ASSERT_EQ(network.advance(1050).size(), 1u);
  EXPECT_EQ(network.next_time(), 50 + 1000 + 200);
  const auto reports = network.advance(1250);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].tag, 7u);
  EXPECT_EQ(reports[0].progress, FlowProgress::arrived);
  EXPECT_EQ(network.link_bytes(0), 5000);
}

// The textbook example: A over both links, B over the first (10), C over the second (6), D over the second.
TEST(FlowNetwork, SharesByHand) {
  FlowNetwork network(links({10, 6}));
  const PathId first = network.add_path({0}), second = network.add_path({1}), both = network.add_path({0, 1});
  const FlowId a = network.start(0, both, 1 << 20, {}), b = network.start(0, first, 1 << 20, {});
  const FlowId c = network.start(0, second, 1 << 20, {}), d = network.start(0, second, 1 << 20, {});
  EXPECT_DOUBLE_EQ(network.flow_rate(a), 2e9);
  EXPECT_DOUBLE_EQ(network.flow_rate(b), 8e9);
  EXPECT_DOUBLE_EQ(network.flow_rate(c), 2e9);
  EXPECT_DOUBLE_EQ(network.flow_rate(d), 2e9);
  EXPECT_DOUBLE_EQ(network.link_rate(0), 10e9);
}

TEST(FlowNetwork, AFlowsOwnLimitLeavesMoreToOthers) {
  FlowNetwork network(links({10}));
  const PathId path = network.add_path({0});
  const FlowId slow = network.start(0, path, 1000, {.bytes_per_ns = 1}), a = network.start(0, path, 1000, {});
  const FlowId b = network.start(0, path, 1000, {});
  EXPECT_DOUBLE_EQ(network.flow_rate(slow), 1e9);
  EXPECT_DOUBLE_EQ(network.flow_rate(a), 4.5e9);
  EXPECT_DOUBLE_EQ(network.flow_rate(b), 4.5e9);
}

// 1000 bytes each at 10: the first alone for 50 ns, then both at 5; the second has 500 left when the first ends.
TEST(FlowNetwork, SharesChangeOverTime) {
  FlowNetwork network(links({10}));
  const PathId path = network.add_path({0});
  network.start(0, path, 1000, {.tag = 1});
  EXPECT_EQ(network.next_time(), 100);
  network.start(50, path, 1000, {.tag = 2});
  const auto times = arrivals(network);
  EXPECT_EQ(times.at(1), 150);
  EXPECT_EQ(times.at(2), 200);
}

TEST(FlowNetwork, AHigherPriorityGoesFirst) {
  FlowNetwork network(links({10, 4}));
  const PathId wide = network.add_path({0}), narrow = network.add_path({0, 1});
  const FlowId low = network.start(0, wide, 1200, {.tag = 1, .priority = 0});
  const FlowId high = network.start(0, narrow, 400, {.tag = 2, .priority = 3});
  EXPECT_DOUBLE_EQ(network.flow_rate(high), 4e9);
  EXPECT_DOUBLE_EQ(network.flow_rate(low), 6e9);
  const FlowId full = network.start(0, wide, 600, {.tag = 3, .priority = 2});
  EXPECT_DOUBLE_EQ(network.flow_rate(full), 6e9);
  EXPECT_DOUBLE_EQ(network.flow_rate(low), 0);
  const auto times = arrivals(network);
  EXPECT_EQ(times.at(2), 100);
  EXPECT_EQ(times.at(3), 100);
  EXPECT_EQ(times.at(1), 100 + 120);
}

TEST(FlowNetwork, BandwidthMayChangeAndStop) {
  FlowNetwork network(links({10}));
  const PathId path = network.add_path({0});
  network.start(0, path, 1000, {.tag = 1});
  network.set_bandwidth(50, 0, 0);
  EXPECT_EQ(network.next_time(), kNever);
  network.set_bandwidth(70, 0, 5e9);
  EXPECT_EQ(arrivals(network).at(1), 70 + 100);
}

TEST(FlowNetwork, NoBytesArriveAfterTheLatency) {
  FlowNetwork network(links({10}, 30));
  const PathId path = network.add_path({0});
  network.start(0, path, 1000, {.tag = 1, .priority = 1});
  network.start(0, path, 0, {.tag = 2});
  const auto times = arrivals(network);
  EXPECT_EQ(times.at(2), 30);
  EXPECT_EQ(times.at(1), 130);
}

struct RandomFlow {
  std::vector<LinkId> path;
  std::int64_t start = 0;
  double left = 0, limit = 0, rate = 0;
  std::uint8_t priority = 0;
  bool is_active = false;
  double end = -1;
};

// Water filling over all active flows, without any of the network's shortcuts.
void fill(std::vector<RandomFlow>& flows, const std::vector<double>& capacity) {
  std::vector<double> left = capacity;
  for (int priority = 3; priority >= 0; --priority) {
    std::vector<RandomFlow*> open;
    for (RandomFlow& f : flows)
      if (f.is_active && f.priority == priority) open.push_back(&f), f.rate = 0;
    while (!open.empty()) {
      std::vector<int> count(left.size(), 0);
      for (const RandomFlow* f : open)
        for (const LinkId l : f->path) ++count[l];
      double step = 1e18;  // how far all may rise together
      for (std::size_t l = 0; l < left.size(); ++l)
        if (count[l] > 0) step = std::min(step, left[l] / count[l]);
      for (const RandomFlow* f : open) step = std::min(step, f->limit - f->rate);
      for (RandomFlow* f : open) {
        f->rate += step;
        for (const LinkId l : f->path) left[l] -= step;
      }
      std::erase_if(open, [&](const RandomFlow* f) {
        return f->rate >= f->limit - 1e-9 ||
               std::any_of(f->path.begin(), f->path.end(), [&](LinkId l) { return left[l] < 1e-9; });
      });
    }
  }
}

void expect_times_of_water_filling(std::uint32_t seed) {
  SCOPED_TRACE(seed);
  std::uint32_t counter = 0;
  const auto random = [&](std::uint32_t below) { return philox({seed, 3}, counter++, 0)[0] % below; };
  const std::uint32_t link_count = 2 + random(8), flow_count = 2 + random(30);
  std::vector<DirectedLink> list;
  std::vector<double> capacity;
  for (std::uint32_t l = 0; l < link_count; ++l) {
    capacity.push_back(1 + random(20));
    list.push_back({0, 1, LinkKind::ethernet, std::llround(capacity.back() * 1e9), 0});
  }
  FlowNetwork network(list);
  std::vector<RandomFlow> flows(flow_count);
  std::vector<PathId> paths;
  std::vector<std::int64_t> bytes;
  for (RandomFlow& f : flows) {
    for (LinkId l = 0; l < link_count; ++l)
      if (random(3) == 0) f.path.push_back(l);
    if (f.path.empty()) f.path.push_back(random(link_count));
    f.start = random(1000) * 1000;
    bytes.push_back(1'000'000 + random(5'000'000));
    f.left = static_cast<double>(bytes.back());
    f.limit = random(4) == 0 ? 0.5 + random(5) : 1e18;
    f.priority = static_cast<std::uint8_t>(seed % 2 == 0 ? 0 : random(4));
    paths.push_back(network.add_path(f.path));
  }
  // Both go from event to event; ours in whole nanoseconds, the reference in doubles.
  std::map<std::uint64_t, std::int64_t> ends;
  double now = 0;
  while (true) {
    double next = 1e18;
    fill(flows, capacity);
    for (const RandomFlow& f : flows) {
      if (f.is_active && f.rate > 0) next = std::min(next, now + f.left / f.rate);
      if (!f.is_active && f.end < 0) next = std::min(next, static_cast<double>(f.start));
    }
    if (next == 1e18) break;
    for (RandomFlow& f : flows) {
      if (!f.is_active) continue;
      f.left -= f.rate * (next - now);
      if (f.left > f.rate * 1e-6 || f.rate == 0) continue;
      f.is_active = false;
      f.end = next;
    }
    now = next;
    for (RandomFlow& f : flows) f.is_active |= f.end < 0 && static_cast<double>(f.start) <= now;
  }
  std::vector<std::uint32_t> order(flow_count);
  for (std::uint32_t i = 0; i < flow_count; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return flows[a].start < flows[b].start; });
  const auto take = [&](std::int64_t until) {
    while (network.next_time() <= until && network.next_time() != kNever) {
      const std::int64_t time = network.next_time();
      for (const FlowReport& r : network.advance(time)) ends[r.tag] = time;
    }
  };
  for (const std::uint32_t i : order) {
    take(flows[i].start);
    network.start(flows[i].start, paths[i], bytes[i],
                  {.tag = i, .bytes_per_ns = flows[i].limit, .priority = flows[i].priority});
  }
  take(kNever);
  for (std::uint32_t i = 0; i < flow_count; ++i) EXPECT_NEAR(static_cast<double>(ends.at(i)), flows[i].end, 20) << i;
}

TEST(FlowNetwork, RandomFlowsEndWhenWaterFillingSays) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) expect_times_of_water_filling(seed);
}

// At one moment: the shares themselves, to rounding.
void expect_shares_of_water_filling(std::uint32_t seed) {
  SCOPED_TRACE(seed);
  std::uint32_t counter = 0;
  const auto random = [&](std::uint32_t below) { return philox({seed, 4}, counter++, 0)[0] % below; };
  const std::uint32_t link_count = 3 + random(20), flow_count = 5 + random(100);
  std::vector<DirectedLink> list;
  std::vector<double> capacity;
  for (std::uint32_t l = 0; l < link_count; ++l) {
    capacity.push_back(1 + random(30));
    list.push_back({0, 1, LinkKind::ethernet, std::llround(capacity.back() * 1e9), 0});
  }
  FlowNetwork network(list);
  std::vector<RandomFlow> flows(flow_count);
  std::vector<FlowId> ids;
  for (RandomFlow& f : flows) {
    for (std::uint32_t hops = 1 + random(4); hops > 0; --hops) {
      const LinkId l = random(link_count);
      if (std::find(f.path.begin(), f.path.end(), l) == f.path.end()) f.path.push_back(l);
    }
    f.limit = random(3) == 0 ? 0.25 * (1 + random(20)) : 1e18;
    f.priority = static_cast<std::uint8_t>(random(3));
    f.is_active = true;
    ids.push_back(
        network.start(0, network.add_path(f.path), 1 << 30, {.bytes_per_ns = f.limit, .priority = f.priority}));
    if (random(3) == 0) network.flow_rate(ids.back());  // settles in between, so that components grow step by step
  }
  fill(flows, capacity);
  for (std::uint32_t i = 0; i < flow_count; ++i) EXPECT_NEAR(network.flow_rate(ids[i]) / 1e9, flows[i].rate, 1e-6) << i;
}

TEST(FlowNetwork, RandomSharesAreMaxMinFair) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) expect_shares_of_water_filling(seed);
}

TEST(Routing, FewestHopsThenWidest) {
  const Cluster cluster = tests::small_cluster(2, 4);
  const Topology topology = make_topology(cluster);
  Router router(topology);
  const auto names = [&](std::uint32_t a, std::uint32_t b) {
    std::string text = topology.vertices[a].name;
    for (const LinkId l : router.route(a, b)) text += " " + topology.vertices[topology.links[l].to].name;
    return text;
  };
  EXPECT_EQ(names(0, 1), "n.0/d.0 n.0/inner.0 n.0/d.1");
  EXPECT_EQ(names(2, 6), "n.0/d.2 leaf.2 n.1/d.2") << "the rail of the place";
  EXPECT_EQ(names(1, 6), "n.0/d.1 leaf.1 spine.0 leaf.2 n.1/d.2") << "devices do not forward";
  EXPECT_TRUE(router.route(3, 3).empty());
}

TEST(Routing, EqualWaysShareTheLoad) {
  const Cluster cluster = parse_cluster(
      R"([device.d]
f32 = "1 TFLOP/s"
memory = [{ capacity = "1 GB", bandwidth = "1 GB/s" }]
[node.n]
count = 64
devices = { d = 1 }
[switch.leaf]
count = 2
[switch.spine]
count = 4
[[link]]
between = [["n/d", "leaf.0"], ["leaf.1", "spine"], ["leaf.0", "spine"]]
kind = "Ethernet"
bandwidth = "10 Gb/s"
latency = "1 us"
)",
      "test");
  const Topology topology = make_topology(cluster);
  Router router(topology);
  std::map<LinkId, int> used;
  for (std::uint32_t d = 0; d < 64; ++d) ++used[router.route(d, topology.device_count + 1)[1]];
  ASSERT_EQ(used.size(), 4u);
  for (const auto& [link, count] : used)
    EXPECT_GT(count, 64 / 4 / 3) << topology.vertices[topology.links[link].to].name;
}

}  // namespace
}  // namespace overtake
