// What NCCL would take, and whether formula and simulation agree.

#include "sim/collective_formulas.h"

#include <gtest/gtest.h>

#include "sim_case.h"

namespace overtake {
namespace {

using tests::Simulation;

TEST(Tuning, LatenciesOfEightGpus) {
  Simulation s(load_cluster("dgx-h100"));
  const DeviceGroup& g = s.collectives.group(s.all());
  EXPECT_EQ(predict_ns(g, Operation::all_reduce, Algorithm::ring, Protocol::ll, 0), 15'000);
  EXPECT_EQ(predict_ns(g, Operation::all_reduce, Algorithm::ring, Protocol::simple, 0), 56'000);
  EXPECT_EQ(predict_ns(g, Operation::all_reduce, Algorithm::in_network, Protocol::simple, 0), 25'000 + 2 * 300);
}

TEST(Tuning, SmallByLatencyLargeByBandwidth) {
  Simulation hopper(load_cluster("dgx-h100")), ampere(load_cluster("dgx-a100"));
  const DeviceGroup& h = hopper.collectives.group(hopper.all());
  const DeviceGroup& g = ampere.collectives.group(ampere.all());
  EXPECT_EQ(choose(h, Operation::all_reduce, 1024).protocol, Protocol::ll);
  EXPECT_NE(choose(h, Operation::all_reduce, 1024).algorithm, Algorithm::in_network);
  EXPECT_EQ(choose(h, Operation::all_reduce, 256 << 20).algorithm, Algorithm::in_network);
  EXPECT_EQ(choose(g, Operation::all_reduce, 256 << 20).algorithm, Algorithm::ring);
  EXPECT_EQ(choose(g, Operation::all_reduce, 256 << 20).protocol, Protocol::simple);
  EXPECT_EQ(choose(g, Operation::all_reduce, 256 << 20, Algorithm::tree).algorithm, Algorithm::tree);
  // Switches that add gain about 1.3 on large messages (measured; research/3).
  const double gain =
      static_cast<double>(predict_ns(h, Operation::all_reduce, Algorithm::ring, Protocol::simple, 1 << 30)) /
      static_cast<double>(predict_ns(h, Operation::all_reduce, Algorithm::in_network, Protocol::simple, 1 << 30));
  EXPECT_NEAR(gain, 1.3, 0.05);
  // Many nodes and little data: trees need fewer hops.
  Simulation many(load_cluster("dgx-a100:32"));
  EXPECT_EQ(choose(many.collectives.group(many.all()), Operation::all_reduce, 64 << 10).algorithm, Algorithm::tree);
}

TEST(Tuning, RingsUseAllCablesOfV100Nodes) {
  Simulation small(load_cluster("p3.8xlarge")), large(load_cluster("p3.16xlarge"));
  EXPECT_DOUBLE_EQ(small.collectives.group(small.all()).ring_bytes_per_ns, 100);
  EXPECT_DOUBLE_EQ(large.collectives.group(large.all()).ring_bytes_per_ns, 150);
}

// Rings reach the 370 GB/s that NCCL counts on, switches that add about 1.3 times as much.
TEST(Tuning, BusBandwidths) {
  Simulation s(load_cluster("dgx-h100"));
  const DeviceGroup& g = s.collectives.group(s.all());
  const std::int64_t bytes = std::int64_t{8} << 30;
  const auto bus = [&](Algorithm algorithm) {
    const std::int64_t time = predict_ns(g, Operation::all_reduce, algorithm, Protocol::simple, bytes);
    return 2.0 * 7 / 8 * static_cast<double>(bytes) / static_cast<double>(time);
  };
  EXPECT_NEAR(bus(Algorithm::ring), 370, 5);
  EXPECT_NEAR(bus(Algorithm::in_network), 480, 15);
}

TEST(Tuning, SendsAreNoCollectives) {
  Simulation s(load_cluster("dgx-h100"));
  const DeviceGroup& g = s.collectives.group(s.collectives.add_group({0, 5}));
  EXPECT_EQ(choose(g, Operation::send_recv, 1 << 20).algorithm, Algorithm::ring);
  EXPECT_EQ(choose(g, Operation::send_recv, 256 << 20).protocol, Protocol::simple);
}

TEST(Tuning, WireBytes) {
  Simulation s(load_cluster("dgx-h100"));
  const DeviceGroup& g = s.collectives.group(s.all());
  EXPECT_DOUBLE_EQ(wire_bytes(g, Operation::all_reduce, Algorithm::ring, 800), 1400);
  EXPECT_DOUBLE_EQ(wire_bytes(g, Operation::all_gather, Algorithm::ring, 800), 700);
  EXPECT_DOUBLE_EQ(wire_bytes(g, Operation::all_reduce, Algorithm::in_network, 800), 900);
}

// Alone in the network the simulation takes about what the formula says. It is no exact match: the formula adds latency
// and bytes, of which the simulation overlaps some, and knows no pieces.
TEST(Tuning, FormulaAndSimulationAgree) {
  for (const char* preset : {"dgx-h100", "dgx-h100:4", "p3.16xlarge", "p3.8xlarge:2", "cpu-hosts", "dgx-a100:3"})
    for (const Algorithm algorithm :
         {Algorithm::ring, Algorithm::tree, Algorithm::hierarchical, Algorithm::in_network, Algorithm::nvls_tree})
      for (const Protocol protocol : {Protocol::ideal, Protocol::ll, Protocol::simple})
        for (const std::int64_t bytes : {std::int64_t{8}, std::int64_t{256} << 20}) {
          Simulation s(load_cluster(preset));
          const GroupId group = s.all();
          const DeviceGroup& g = s.collectives.group(group);
          if (!cannot_run(g, Operation::all_reduce, algorithm).empty()) continue;
          const std::int64_t predicted = predict_ns(g, Operation::all_reduce, algorithm, protocol, bytes);
          const std::int64_t simulated =
              s.time_of({.group = group, .bytes = bytes, .algorithm = algorithm, .protocol = protocol});
          EXPECT_NEAR(static_cast<double>(simulated) / static_cast<double>(predicted), 1, 0.24)
              << preset << " " << to_string(algorithm) << " " << to_string(protocol) << " " << bytes
              << " B: " << predicted << " ns predicted";
        }
}

// Of an all-to-all, too: many messages of a rank begin at once, so latency is that of rounds.
TEST(Tuning, FormulaAndSimulationAgreeOnAllToAll) {
  for (const char* preset : {"dgx-h100", "dgx-h100:4", "p3.16xlarge", "p3.8xlarge:2", "cpu-hosts", "dgx-a100:3"})
    for (const Protocol protocol : {Protocol::ideal, Protocol::ll, Protocol::simple})
      for (const std::int64_t bytes : {std::int64_t{8}, std::int64_t{256} << 20}) {
        Simulation s(load_cluster(preset));
        const GroupId group = s.all();
        const CollectiveId id = s.collectives.add(
            {.group = group, .operation = Operation::all_to_all, .bytes = bytes, .protocol = protocol});
        const std::int64_t predicted = s.collectives.choice(id).predicted_ns;
        s.collectives.ready_all(0, id);
        EXPECT_NEAR(static_cast<double>(s.run()) / static_cast<double>(predicted), 1, 0.24)
            << preset << " " << to_string(protocol) << " " << bytes << " B: " << predicted << " ns predicted";
      }
}

}  // namespace
}  // namespace overtake
