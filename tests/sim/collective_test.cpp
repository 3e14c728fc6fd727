// Collectives against closed forms, to the nanosecond: `a` is the latency of a way, 100 and 10 the bytes per
// nanosecond.

#include "sim/collective.h"

#include <gtest/gtest.h>

#include <bit>
#include <tuple>

#include "base/philox.h"
#include "sim_case.h"
#include "unit/temporary_folder.h"

namespace overtake {
namespace {

using tests::kWayNs;
using tests::ring_ends;
using tests::Simulation;
using tests::small_cluster;

CollectiveSpec ideal(GroupId group, Algorithm algorithm, std::int64_t bytes,
                     Operation operation = Operation::all_reduce) {
  return {.group = group, .operation = operation, .bytes = bytes, .algorithm = algorithm, .protocol = Protocol::ideal};
}

std::int64_t time_of(const Cluster& cluster, Algorithm algorithm, std::int64_t bytes,
                     Operation operation = Operation::all_reduce) {
  Simulation s(cluster);
  return s.time_of(ideal(s.all(), algorithm, bytes, operation));
}

TEST(Collective, RingTakesItsSteps) {
  for (const std::int64_t n : {2, 3, 4, 8, 13}) {
    const std::int64_t bytes = n * 100 * 50;
    EXPECT_EQ(time_of(small_cluster(1, static_cast<int>(n)), Algorithm::ring, bytes), 2 * (n - 1) * (kWayNs + 50)) << n;
    for (const Operation half : {Operation::reduce_scatter, Operation::all_gather})
      EXPECT_EQ(time_of(small_cluster(1, static_cast<int>(n)), Algorithm::ring, bytes, half), (n - 1) * (kWayNs + 50))
          << n;
  }
}

// Up: two children into one link, then one on; down the same way back. Half the bytes in each tree.
TEST(Collective, TreeOfOnePiece) {
  const std::int64_t bytes = 40'000;
  EXPECT_EQ(time_of(small_cluster(1, 2), Algorithm::tree, bytes), 2 * (kWayNs + bytes / 2 / 100));
  EXPECT_EQ(time_of(small_cluster(1, 4), Algorithm::tree, bytes), 4 * kWayNs + 3 * bytes / 100);
}

// Many pieces: every link carries twice the bytes at most, and the rest is latency.
TEST(Collective, TreeStreamsNearTheBandwidth) {
  const std::int64_t bytes = 512ll << 20;
  const double floor = 2.0 * static_cast<double>(bytes) / 100 * 15 / 16;
  const auto time = static_cast<double>(time_of(small_cluster(1, 16), Algorithm::tree, bytes));
  EXPECT_GT(time, floor);
  EXPECT_LT(time, 1.15 * floor);
}

// 1,024 ranks, 2,046 steps: memory per rank, not per step.
TEST(Collective, LanesAreFew) {
  Simulation s(small_cluster(1, 1024));
  Paths paths(s.topology, s.network);
  const DeviceGroup& group = s.collectives.group(s.all());
  EXPECT_EQ(make_lanes(group, paths, Operation::all_reduce, Algorithm::ring, 0).lanes.size(), 1024u);
  EXPECT_EQ(make_lanes(group, paths, Operation::all_reduce, Algorithm::tree, 0).lanes.size(), 4u * 1023);
  EXPECT_EQ(make_lanes(group, paths, Operation::all_reduce, Algorithm::halving_doubling, 0).lanes.size(), 20u * 1024);
}

TEST(Collective, HalvingDoubling) {
  for (const std::int64_t n : {2, 4, 8, 16}) {
    const std::int64_t bytes = n * 100 * 50, steps = std::countr_zero(static_cast<std::uint64_t>(n));
    EXPECT_EQ(time_of(small_cluster(1, static_cast<int>(n)), Algorithm::halving_doubling, bytes),
              2 * (steps * kWayNs + (n - 1) * 50))
        << n;
    EXPECT_EQ(time_of(small_cluster(1, static_cast<int>(n)), Algorithm::halving_doubling, bytes, Operation::all_gather),
              steps * kWayNs + (n - 1) * 50);
  }
  // Three: one hands its data over first, while a half comes in on the same link, and gets the result last.
  EXPECT_EQ(time_of(small_cluster(1, 3), Algorithm::halving_doubling, 20'000), 4 * kWayNs + 300 + 100 + 100 + 200);
}

TEST(Collective, Hierarchical) {
  const std::int64_t nodes = 3, local = 4, bytes = 12 * 1000 * 100, across = 2000;
  EXPECT_EQ(time_of(small_cluster(3, 4), Algorithm::hierarchical, bytes),
            2 * (local - 1) * (kWayNs + bytes / local / 100) + 2 * (nodes - 1) * (across + bytes / local / nodes / 10));
}

TEST(Collective, RingsOnAllRails) {
  // Four rings of a quarter each, all network cards busy: the ring's slowest hop sets the pace in the end.
  const std::int64_t bytes = 64ll << 20, n = 8;
  const auto time = static_cast<double>(time_of(small_cluster(2, 4), Algorithm::ring, bytes));
  const double bandwidth_part = 2.0 * static_cast<double>((n - 1) * bytes / n) / (4 * 10);
  EXPECT_GT(time, bandwidth_part);
  EXPECT_LT(time, 1.02 * bandwidth_part);
}

const std::string kPush =
    R"(reduction = "push"
table = 1000
entry = "100 B"
round_trip = "2 us"
fixed_cost = "5 us"
efficiency = 0.8)";
const std::string kPull =
    R"(reduction = "pull"
table = 100000
entry = "100 B"
round_trip = "2 us"
fixed_cost = "25 us"
efficiency = 0.8)";

// 1000 entries of 100 B in 2 us are 50 bytes/ns, less than 0.8 of the link; 100000 are no limit.
TEST(Collective, InNetworkHasALowerAndAnUpperLimit) {
  EXPECT_EQ(time_of(small_cluster(1, 8, kPush), Algorithm::in_network, 0), 5000 + kWayNs);
  EXPECT_EQ(time_of(small_cluster(1, 8, kPush), Algorithm::in_network, 1'000'000), 5000 + kWayNs + 1'000'000 / 50);
  EXPECT_EQ(time_of(small_cluster(1, 8, kPull), Algorithm::in_network, 800'000), 25000 + kWayNs + 900'000 / 80);
  // Across nodes: shares inside, sums in the switch of each rail (10 * 0.8), shares inside.
  EXPECT_EQ(time_of(small_cluster(2, 4, kPush), Algorithm::in_network, 400'000),
            5000 + 2 * 3 * (kWayNs + 1000) + 2000 + 100'000 / 8);
}

// The table of research: bytes on the link of a device, each way.
TEST(Collective, BytesPerLink) {
  const std::int64_t bytes = 8'000'000;
  for (const auto& [algorithm, cluster, expected] :
       {std::tuple{Algorithm::ring, small_cluster(1, 8), 2 * bytes * 7 / 8},
        std::tuple{Algorithm::halving_doubling, small_cluster(1, 8), 2 * bytes * 7 / 8},
        std::tuple{Algorithm::in_network, small_cluster(1, 8, kPush), bytes},
        std::tuple{Algorithm::in_network, small_cluster(1, 8, kPull), bytes + bytes / 8}}) {
    Simulation s(cluster);
    s.time_of(ideal(s.all(), algorithm, bytes));
    for (std::uint32_t d = 0; d < 8; ++d) {
      EXPECT_EQ(s.sent(d), expected) << to_string(algorithm);
      EXPECT_EQ(s.received(d), expected) << to_string(algorithm);
    }
  }
  // Odd sizes lose and invent no byte: n - 1 ranks pass every byte on, twice.
  Simulation s(small_cluster(1, 8));
  s.time_of(ideal(s.all(), Algorithm::ring, 1'000'003));
  std::int64_t sum = 0;
  for (std::uint32_t d = 0; d < 8; ++d) sum += s.sent(d);
  EXPECT_EQ(sum, 2 * 7 * 1'000'003);
  // Two trees: a rank inside one is a leaf of the other, and no link carries more than twice the bytes.
  Simulation trees(small_cluster(1, 8));
  trees.time_of(ideal(trees.all(), Algorithm::tree, bytes));
  for (std::uint32_t d = 0; d < 8; ++d) EXPECT_LE(trees.sent(d), 2 * bytes);
}

TEST(Collective, BroadcastAndSend) {
  // One piece down a chain; a binary tree of four: root -> 2 -> {1, 3}.
  EXPECT_EQ(time_of(small_cluster(1, 4), Algorithm::ring, 30'000, Operation::broadcast), 3 * (kWayNs + 300));
  EXPECT_EQ(time_of(small_cluster(1, 4), Algorithm::tree, 30'000, Operation::broadcast), 2 * kWayNs + 300 + 600);
  // 8 pieces of 32 KiB (328 ns) stream: the last leaves after 8 times, and has two more hops to go.
  EXPECT_EQ(time_of(small_cluster(1, 4), Algorithm::ring, 8 * (32 << 10), Operation::broadcast), 10 * 328 + 3 * kWayNs);
  EXPECT_EQ(time_of(small_cluster(1, 2), Algorithm::ring, 100'000, Operation::send_recv), kWayNs + 1000);
}

// n - 1 messages of an n-th leave each rank, 32 at once; the next 32 begin when these have come.
TEST(Collective, AllToAllOnASwitch) {
  for (const std::int64_t n : {2, 3, 8, 24, 33, 34, 65, 72}) {
    const std::int64_t rounds = (n - 1 + 31) / 32, piece = 84'000;
    EXPECT_EQ(time_of(small_cluster(1, static_cast<int>(n)), Algorithm::automatic, n * piece, Operation::all_to_all),
              rounds * kWayNs + (n - 1) * piece / 100)
        << n;
  }
}

// Whatever algorithm is asked for: there is one way. No byte is lost or made up, of odd sizes too.
TEST(Collective, AllToAllMovesEveryPieceOnce) {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1'000'003}}) {
    Simulation s(small_cluster(2, 4));
    s.time_of(ideal(s.all(), Algorithm::tree, bytes, Operation::all_to_all));
    std::int64_t sent = 0;
    for (std::uint32_t d = 0; d < 8; ++d) {
      sent += s.sent(d);
      EXPECT_EQ(s.sent(d), bytes - bytes / 8 - (d < bytes % 8)) << d;
      EXPECT_EQ(s.received(d), 7 * (bytes / 8 + (d < bytes % 8))) << d;
    }
    EXPECT_EQ(sent, 7 * bytes);
  }
}

// Four of seven messages of a rank leave its node, on its own network card; the others are done meanwhile.
TEST(Collective, AllToAllOnRails) {
  const std::int64_t bytes = 8'000'000;
  EXPECT_EQ(time_of(small_cluster(2, 4), Algorithm::automatic, bytes, Operation::all_to_all),
            2000 + 4 * bytes / 8 / 10);
}

// Without rails the four GPUs of a node share its way out: 12 of 15 messages of each leave.
TEST(Collective, AllToAllAcrossNodes) {
  const Cluster cluster = load_cluster("p3.8xlarge:4");
  const std::int64_t bytes = 64 << 20;
  const double floor = 4.0 * 12 / 16 * static_cast<double>(bytes) / 1.25;
  const auto time = static_cast<double>(time_of(cluster, Algorithm::automatic, bytes, Operation::all_to_all));
  EXPECT_GE(time, floor);
  EXPECT_LT(time, 1.03 * floor);
}

// Between cables of 25 and 50 GB/s a rank sends on all of its at once.
TEST(Collective, AllToAllOverCables) {
  const std::int64_t bytes = 4 * 25'000'000;
  EXPECT_EQ(time_of(load_cluster("p3.8xlarge"), Algorithm::automatic, bytes, Operation::all_to_all), 600 + 1'000'000);
}

TEST(Collective, AllToAllAmongTooManyIsRefused) {
  Simulation s(load_cluster("dgx-h100:257"));
  const GroupId group = s.all();
  EXPECT_TRUE(says(user_error([&] { s.collectives.add(ideal(group, Algorithm::automatic, 1, Operation::all_to_all)); }),
                   {"collective: all-to-all among 2056 devices", "2048", "groups of fewer"}));
}

TEST(Collective, JitteredStartsFollowTheRecurrence) {
  const std::uint32_t n = 16;
  Simulation s(small_cluster(1, n));
  const CollectiveId id = s.collectives.add(ideal(s.all(), Algorithm::ring, n * 5000));
  std::vector<std::int64_t> ready(n);
  std::vector<std::pair<std::int64_t, std::uint32_t>> order;
  for (std::uint32_t r = 0; r < n; ++r) {
    ready[r] = philox({5, 5}, r, 0)[0] % 20000;
    order.emplace_back(ready[r], r);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::int64_t> ends(n);
  std::size_t next = 0;
  while (true) {
    const std::int64_t time = std::min(next < n ? order[next].first : kNever, s.collectives.next_time());
    if (time == kNever) break;
    for (const CollectiveReport& r : s.collectives.advance(time)) ends[r.rank] = time;
    for (; next < n && order[next].first == time; ++next) s.collectives.ready(time, id, order[next].second);
  }
  EXPECT_EQ(ends, ring_ends(ready, std::vector<std::int64_t>(n, 50), kWayNs));
}

// Of four chunks and six steps, of which each goes in three pieces: when the urgent one comes, in the last piece of the
// fourth step, two thirds are sent or on their way. The third chunk is the next border: what is left until there is
// spread over the two steps that are left. The rest starts from the beginning.
TEST(Collective, AnUrgentOneOvertakesAtTheEndOfAChunk) {
  Simulation s(small_cluster(1, 4));
  const GroupId group = s.all();
  CollectiveSpec bulk = ideal(group, Algorithm::ring, 360'000), urgent = ideal(group, Algorithm::ring, 40'000);
  bulk.chunk_bytes = 90'000;
  urgent.priority = 1;
  const std::int64_t step = kWayNs + 900, three = 6 * (kWayNs + 900 * 3 / 4), last = 6 * (kWayNs + 900 / 4),
                     small = 6 * (kWayNs + 100), comes = 3 * step + 610;
  const CollectiveId first = s.collectives.add(bulk), second = s.collectives.add(urgent);
  s.collectives.ready_all(0, first);
  while (s.collectives.next_time() < comes) s.collectives.advance(s.collectives.next_time());
  s.collectives.ready_all(comes, second);
  s.run();
  EXPECT_EQ(s.end_of(second), three + small);
  EXPECT_EQ(s.end_of(first), three + small + last);
}

// A stream of chunks starts up once and has one algorithm: it takes what it takes without chunks.
TEST(Collective, ChunksTakeNoTime) {
  for (const char* preset : {"dgx-h100", "dgx-h100:2", "dgx-a100:2", "p3.16xlarge", "p3.8xlarge:2"})
    for (const Algorithm algorithm :
         {Algorithm::automatic, Algorithm::ring, Algorithm::tree, Algorithm::in_network, Algorithm::nvls_tree})
      for (const bool is_fluid : {false, true}) {
        Simulation whole(load_cluster(preset)), chunks(load_cluster(preset));
        CollectiveSpec spec{.group = whole.all(), .bytes = 256 << 20, .algorithm = algorithm, .is_fluid = is_fluid};
        if (!cannot_run(whole.collectives.group(spec.group), spec.operation, algorithm).empty()) continue;
        const auto expected = static_cast<double>(whole.time_of(spec));
        spec.group = chunks.all();
        spec.chunk_bytes = 4 << 20;
        EXPECT_NEAR(static_cast<double>(chunks.time_of(spec)) / expected, 1, 0.002)
            << preset << " " << to_string(algorithm) << (is_fluid ? ", fluid" : "");
      }
}

// Whatever way a collective goes, an urgent one does not wait for its end, and nothing is lost by it but start-ups.
TEST(Collective, EveryAlgorithmCanBeOvertaken) {
  for (const auto& [preset, algorithm] :
       {std::pair{"dgx-h100", Algorithm::ring}, std::pair{"dgx-h100", Algorithm::tree},
        std::pair{"dgx-h100", Algorithm::in_network}, std::pair{"dgx-h100:2", Algorithm::nvls_tree}})
    for (const bool is_fluid : {false, true}) {
      Simulation s(load_cluster(preset));
      const GroupId group = s.all();
      CollectiveSpec bulk{.group = group,
                          .bytes = 256 << 20,
                          .algorithm = algorithm,
                          .protocol = Protocol::simple,
                          .chunk_bytes = 4 << 20,
                          .is_fluid = is_fluid};
      CollectiveSpec urgent = bulk;
      urgent.bytes = 1 << 10;
      urgent.priority = 1;
      Simulation alone(load_cluster(preset)), small(load_cluster(preset));
      bulk.group = alone.all();
      const std::int64_t all = alone.time_of(bulk);
      urgent.group = small.all();
      const std::int64_t little = small.time_of(urgent);
      bulk.group = urgent.group = group;
      const CollectiveId first = s.collectives.add(bulk), second = s.collectives.add(urgent);
      s.collectives.ready_all(0, first);
      while (s.collectives.next_time() < all / 2) s.collectives.advance(s.collectives.next_time());
      s.collectives.ready_all(all / 2, second);
      s.run();
      EXPECT_LT(s.end_of(second), all * 4 / 5 + little) << to_string(algorithm);
      EXPECT_GT(s.end_of(first), all + little) << to_string(algorithm);
      EXPECT_LT(s.end_of(first), all * 3 / 2 + little) << to_string(algorithm);
    }
}

TEST(Collective, WithoutChunksNobodyOvertakes) {
  Simulation s(small_cluster(1, 4));
  const GroupId group = s.all();
  CollectiveSpec urgent = ideal(group, Algorithm::ring, 40'000);
  urgent.priority = 1;
  const CollectiveId first = s.collectives.add(ideal(group, Algorithm::ring, 400'000)),
                     second = s.collectives.add(urgent);
  s.collectives.ready_all(0, first);
  s.collectives.ready_all(0, second);
  s.run();
  EXPECT_EQ(s.end_of(first), 6 * (kWayNs + 1000));
  EXPECT_EQ(s.end_of(second), 6 * (kWayNs + 1000) + 6 * (kWayNs + 100));
}

// Two groups of the same devices have half the links each; with priorities the urgent one has them all.
TEST(Collective, GroupsShareLinksOrTakeTurnsByPriority) {
  for (const bool urgent : {false, true}) {
    Simulation s(small_cluster(1, 4));
    CollectiveSpec one = ideal(s.all(), Algorithm::ring, 400'000), two = ideal(s.all(), Algorithm::ring, 400'000);
    two.priority = urgent;
    const CollectiveId first = s.collectives.add(one), second = s.collectives.add(two);
    s.collectives.ready_all(0, first);
    s.collectives.ready_all(0, second);
    s.run();
    EXPECT_EQ(s.end_of(second), 6 * (kWayNs + (urgent ? 1000 : 2000)));
    if (!urgent) {
      EXPECT_EQ(s.end_of(first), 6 * (kWayNs + 2000));
    }
  }
}

TEST(Collective, OneFlowPerRankTakesTheSameTime) {
  const auto difference = [](const Cluster& cluster, Algorithm algorithm, Protocol protocol, std::int64_t bytes) {
    Simulation steps(cluster), fluid(cluster);
    CollectiveSpec spec = ideal(steps.all(), algorithm, bytes);
    spec.protocol = protocol;
    const auto expected = static_cast<double>(steps.time_of(spec));
    spec.group = fluid.all();
    spec.is_fluid = true;
    return std::abs(static_cast<double>(fluid.time_of(spec)) - expected) / expected;
  };
  for (const std::int64_t bytes : {12'000, 1'200'000, 120'000'000}) {
    EXPECT_EQ(difference(small_cluster(1, 4), Algorithm::ring, Protocol::ideal, bytes), 0);
    EXPECT_EQ(difference(small_cluster(3, 4), Algorithm::hierarchical, Protocol::ideal, bytes), 0);
    // Fast and slow hops in one ring.
    EXPECT_LT(difference(small_cluster(3, 4), Algorithm::ring, Protocol::ideal, bytes), 0.06) << bytes;
    for (const char* preset : {"dgx-h100:2", "dgx-h100:4"}) {
      EXPECT_LT(difference(load_cluster(preset), Algorithm::nvls_tree, Protocol::simple, bytes), 0.08) << bytes;
      EXPECT_LT(difference(load_cluster(preset), Algorithm::tree, Protocol::automatic, bytes), 0.08) << bytes;
    }
    for (const char* preset : {"dgx-h100:4", "p3.8xlarge:4", "p3.16xlarge"})
      for (const Protocol protocol : {Protocol::ll, Protocol::simple})
        EXPECT_LT(difference(load_cluster(preset), Algorithm::ring, protocol, bytes), 0.08) << preset << " " << bytes;
  }
}

TEST(Collective, HoldsSmsAndMemoryWhileItRuns) {
  Simulation s(small_cluster(1, 4));
  const CollectiveId id = s.collectives.add(ideal(s.all(), Algorithm::ring, 4'000'000));
  s.collectives.ready_all(0, id);
  s.collectives.advance(0);
  EXPECT_EQ(s.collectives.take_changed(), (std::vector<std::uint32_t>{0, 1, 2, 3}));
  const double time = 6 * (kWayNs + 10'000);
  EXPECT_EQ(s.collectives.load(2).sms, 16);
  EXPECT_NEAR(s.collectives.load(2).memory_bytes_per_s, 3 * 6'000'000 / time * 1e9, 1) << "three times the link's";
  EXPECT_TRUE(s.collectives.take_changed().empty());
  s.run();
  EXPECT_EQ(s.collectives.load(2), DeviceLoad{});
  EXPECT_EQ(s.collectives.take_changed().size(), 4u);
}

TEST(Collective, ABusyDeviceSlowsItDown) {
  Simulation s(small_cluster(1, 4));
  s.collectives.set_speed(0, 1, 0.5);
  // Into it and out of it at half the rate.
  const std::vector<std::int64_t> ends = ring_ends({0, 0, 0, 0}, {20'000, 20'000, 10'000, 10'000}, kWayNs);
  EXPECT_EQ(s.time_of(ideal(s.all(), Algorithm::ring, 4'000'000)), *std::max_element(ends.begin(), ends.end()));
}

TEST(Collective, ADeadDeviceStopsItAndItGoesOnAfterwards) {
  Simulation s(small_cluster(1, 4));
  const CollectiveId id = s.collectives.add(ideal(s.all(), Algorithm::ring, 4'000'000));
  s.collectives.ready_all(0, id);
  while (s.collectives.next_time() < 5000) s.collectives.advance(s.collectives.next_time());
  s.collectives.set_speed(5000, 2, 0);
  EXPECT_LT(s.run(), 30'000) << "nothing moves any more";
  EXPECT_EQ(s.end_of(id), -1);
  s.collectives.set_speed(1'000'000, 2, 1);
  s.run();
  EXPECT_EQ(s.end_of(id), 6 * (kWayNs + 10'000) + 1'000'000 - 5000);
}

TEST(Collective, WithoutLatency) {
  EXPECT_EQ(time_of(small_cluster(1, 4, "", 0), Algorithm::ring, 40'000), 6 * 100);
  EXPECT_EQ(time_of(small_cluster(1, 4, "", 0), Algorithm::halving_doubling, 40'000), 2 * 300);
  EXPECT_EQ(time_of(small_cluster(1, 4, "", 0), Algorithm::ring, 0), 0);
}

TEST(Collective, OneDeviceAlone) {
  Simulation s(small_cluster(1, 2));
  const GroupId group = s.collectives.add_group({1});
  EXPECT_EQ(s.time_of(ideal(group, Algorithm::ring, 1000)), 0);
  ASSERT_EQ(s.ends.size(), 1u);
}

TEST(Collective, TheSameBytesOfOutputTwice) {
  const auto log = [] {
    Simulation s(load_cluster("dgx-h100:2"));
    const GroupId all = s.all(), few = s.collectives.add_group({1, 9, 4, 12});
    for (std::uint32_t i = 0; i < 6; ++i)
      s.collectives.ready_all(i * 1000, s.collectives.add({.group = i % 2 == 0 ? all : few,
                                                           .bytes = 1'000'003 << i,
                                                           .priority = static_cast<std::uint8_t>(i % 3),
                                                           .chunk_bytes = 4 << 20}));
    s.run();
    return s.log;
  };
  const std::string first = log();
  EXPECT_GT(first.size(), 1000u);
  EXPECT_EQ(first, log());
}

TEST(Collective, WhatCannotRunIsTheUsersError) {
  Simulation s(small_cluster(1, 3));
  const GroupId group = s.all();
  EXPECT_TRUE(says(user_error([&] { s.collectives.add(ideal(group, Algorithm::in_network, 1)); }),
                   {"in-network", "all-reduce", "3 devices", "no switch", "use ring"}));
  EXPECT_TRUE(says(user_error([&] { s.collectives.add(ideal(group, Algorithm::tree, 1, Operation::all_gather)); }),
                   {"tree", "all-gather"}));
  EXPECT_TRUE(
      says(user_error([&] { s.collectives.add(ideal(group, Algorithm::halving_doubling, 1, Operation::all_gather)); }),
           {"power of two"}));
}

}  // namespace
}  // namespace overtake
