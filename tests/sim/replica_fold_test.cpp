// Replicas that do the same are simulated once: which ones that are, and that a step takes what it takes with all.

#include "plan/divide/replica_fold.h"

#include <gtest/gtest.h>

#include <numeric>

#include "machine/gpu_target.h"
#include "machine/kernel_times/kernel_times.h"
#include "overtake/zoo.h"
#include "passes/training_passes.h"
#include "plan/divide/step_planner.h"
#include "plan/divide/workload.h"
#include "sim/collective_lanes.h"

namespace overtake::tests {
namespace {

Machine folding(Cluster cluster, bool folds = true) {
  Machine machine = described_machine(std::move(cluster));
  machine.folds_replicas = folds;
  machine.options.is_fluid = true;
  return machine;
}

std::vector<std::uint32_t> first_devices(std::uint32_t count) {
  std::vector<std::uint32_t> devices(count);
  std::iota(devices.begin(), devices.end(), 0u);
  return devices;
}

std::uint32_t kept(const Machine& machine, std::uint32_t replicas, std::uint32_t stages,
                   std::vector<std::uint32_t> devices = {}) {
  if (devices.empty()) devices = first_devices(replicas * stages);
  return fold_replicas({.replicas = replicas, .stages = stages}, machine, devices).kept;
}

TEST(ReplicaFold, KeepsTheReplicasOfWholeNodes) {
  const Machine machine = folding(load_cluster("dgx-h100:32"));
  EXPECT_EQ(kept(machine, 64, 1), 8u);
  EXPECT_EQ(kept(machine, 256, 1), 8u);
  EXPECT_EQ(kept(machine, 64, 4), 2u);
  EXPECT_EQ(kept(machine, 8, 8), 1u);
  EXPECT_EQ(kept(machine, 4, 16), 1u);
  EXPECT_EQ(kept(machine, 16, 3), 8u);   // three nodes, twice
  EXPECT_EQ(kept(machine, 24, 3), 8u);   // and three times
  EXPECT_EQ(kept(machine, 16, 12), 2u);  // twelve on eight: three nodes hold two
  // A device of each node is a node's part, too.
  std::vector<std::uint32_t> first_of_nodes, others;
  for (std::uint32_t n = 0; n < 32; ++n)
    for (const std::uint32_t place : {0u, 5u}) first_of_nodes.push_back(8 * n + place);
  EXPECT_EQ(kept(machine, 64, 1, first_of_nodes), 2u);
  // Not in the same places everywhere.
  others = first_of_nodes;
  others.back() += 1;
  EXPECT_EQ(kept(machine, 64, 1, others), 64u);
  // In another order than the nodes.
  std::ranges::reverse(first_of_nodes);
  EXPECT_EQ(kept(machine, 64, 1, first_of_nodes), 2u);
}

TEST(ReplicaFold, KeepsAllWhereSomethingTellsThemApart) {
  const Machine machine = folding(load_cluster("dgx-h100:8"));
  EXPECT_EQ(kept(machine, 32, 1), 32u) << "small enough as it is";
  EXPECT_EQ(kept(machine, 60, 1), 60u) << "seven nodes and a half";
  EXPECT_EQ(kept(folding(load_cluster("dgx-h100:8"), false), 64, 1), 64u);
  Machine slow = machine;
  slow.options.speeds.assign(64, 1);
  EXPECT_EQ(kept(slow, 64, 1), 8u) << "all alike";
  slow.options.speeds[40] = 0.9;
  EXPECT_EQ(kept(slow, 64, 1), 64u);
  Machine failing = machine;
  failing.options.failures.push_back({63, 1'000'000});
  EXPECT_EQ(kept(failing, 64, 1), 64u);
  // Two spines that carry less than the nodes send, of which a flow takes one by chance.
  Cluster narrow = load_cluster("dgx-h100:8");
  narrow.switches.back().count = 2;
  EXPECT_EQ(kept(folding(narrow), 64, 1), 8u) << "wide enough, whichever it takes";
  narrow.links.back().bandwidth /= 1000;
  EXPECT_EQ(kept(folding(narrow), 64, 1), 64u);
  narrow.switches.back().count = 1;
  EXPECT_EQ(kept(folding(narrow), 64, 1), 8u) << "all share the one alike";
  // Two ways out of every GPU, of which a flow takes one by chance.
  Cluster doubled = load_cluster("dgx-h100:8");
  doubled.links[1].count = 2;
  EXPECT_EQ(kept(folding(doubled), 64, 1), 64u);
  // Two kinds of nodes, and of devices.
  Cluster mixed = load_cluster("cpu-hosts:32");
  mixed.nodes.push_back(mixed.nodes[0]);
  mixed.nodes[1].name = "other";
  mixed.links.push_back(mixed.links[0]);
  mixed.links[1].from.node = "other";
  EXPECT_EQ(kept(folding(mixed), 64, 1), 64u);
}

Workload workload_of(const std::string& model, const std::string& settings, const std::string& device_of) {
  PassRunner runner;
  const Graph step = build_training_graph(build_model(model, ModelSettings::parse(settings)), GpuTarget(),
                                          {.optimizer = {}, .bf16 = true, .extra = {}}, runner);
  return {.blocks = make_blocks(step, kernel_times(step, load_cluster(device_of).devices[0]), 24)};
}

struct FoldSetting {
  const char* machine;
  std::uint32_t replicas, stages;
  const char* reduce;
  Algorithm algorithm;
};

PredictedStep predicted(const Workload& work, const FoldSetting& s, bool folds, std::int64_t chunk_bytes) {
  Machine machine = folding(load_cluster(s.machine), folds);
  machine.options.algorithm = s.algorithm;
  machine.options.chunk_bytes = chunk_bytes;
  const ParallelOptions options{.replicas = s.replicas,
                                .stages = s.stages,
                                .micro_batches = s.stages > 1 ? 4u : 1u,
                                .reduce = s.reduce,
                                .bucket_bytes = 4 << 20,
                                .lanes = "in-order"};
  const StepPlanner planner(work, options, machine, {}, 4);
  return planner.predict(planner.choices()[0]);
}

// Rings as flows, which is how runs of so many devices are simulated in any case: the same to the nanosecond. Trees and
// switches that add take what their formulas say, which is closer to their flows the larger the chunks.
TEST(ReplicaFold, AStepTakesWhatItTakesWithAllReplicas) {
  const Workload work = workload_of("resnet-18", "image=64,batch=4", "dgx-h100");
  for (const FoldSetting& s : {FoldSetting{"dgx-a100:8", 64, 1, "buckets", Algorithm::ring},
                               FoldSetting{"dgx-a100:8", 64, 1, "by-layer", Algorithm::ring},
                               FoldSetting{"dgx-a100:8", 64, 1, "scatter-gather", Algorithm::ring},
                               FoldSetting{"dgx-h100:8", 16, 4, "buckets", Algorithm::ring},
                               FoldSetting{"dgx-h100:8", 4, 16, "by-layer", Algorithm::ring},
                               FoldSetting{"p3.8xlarge:16", 64, 1, "buckets", Algorithm::ring},
                               FoldSetting{"p3.8xlarge:16", 32, 2, "by-layer", Algorithm::ring},
                               FoldSetting{"p3.8xlarge:16", 16, 4, "scatter-gather", Algorithm::ring},
                               FoldSetting{"p3.16xlarge:8", 64, 1, "by-layer", Algorithm::ring},
                               FoldSetting{"cpu-hosts:64", 64, 1, "by-layer", Algorithm::ring},
                               FoldSetting{"ideal:64", 16, 4, "buckets", Algorithm::ring},
                               FoldSetting{"dgx-h100:8", 64, 1, "buckets", Algorithm::automatic},
                               FoldSetting{"dgx-h100:8", 64, 1, "by-layer", Algorithm::automatic},
                               FoldSetting{"dgx-h100:8", 8, 8, "buckets", Algorithm::automatic},
                               FoldSetting{"dgx-a100:8", 64, 1, "buckets", Algorithm::automatic},
                               FoldSetting{"p3.8xlarge:16", 64, 1, "buckets", Algorithm::automatic},
                               FoldSetting{"p3.16xlarge:8", 64, 1, "buckets", Algorithm::hierarchical},
                               FoldSetting{"dgx-h100:8", 64, 1, "buckets", Algorithm::tree}})
    for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{1} << 20}) {
      SCOPED_TRACE(fmt::format("{} {} x {} {} algorithm {} chunk {}", s.machine, s.replicas, s.stages, s.reduce,
                               to_string(s.algorithm), chunk));
      const PredictedStep all = predicted(work, s, false, chunk), folded = predicted(work, s, true, chunk);
      ASSERT_TRUE(all.result.is_finished && folded.result.is_finished);
      EXPECT_EQ(all.alike(), 1u);
      EXPECT_GT(folded.alike(), 1u);
      EXPECT_EQ(folded.devices.size() * folded.alike(), all.devices.size());
      const double ratio = static_cast<double>(folded.step_ns()) / static_cast<double>(all.step_ns());
      const double bound = s.algorithm == Algorithm::ring ? 0 : chunk == 0 ? 0.03 : 0.2;
      EXPECT_NEAR(ratio, 1, bound) << folded.step_ns() << " against " << all.step_ns();
      const std::vector<std::int64_t> few = peak_memory(folded), many = peak_memory(all);
      for (std::size_t d = 0; d < few.size(); ++d) EXPECT_EQ(few[d], many[d]) << d;
    }
}

// A spine that is far too narrow: replicas over two nodes send across it, and so do the rings through all nodes.
TEST(ReplicaFold, SharesOfNarrowLinksAreEven) {
  const Workload work = workload_of("resnet-18", "image=64,batch=4", "dgx-h100");
  for (const auto& [replicas, stages] : {std::pair{4u, 16u}, std::pair{8u, 8u}, std::pair{64u, 1u}}) {
    SCOPED_TRACE(fmt::format("{} x {}", replicas, stages));
    Cluster cluster = load_cluster("dgx-h100:8");
    cluster.links.back().bandwidth = 20'000'000'000;
    const auto step_ns = [&](bool folds) {
      Machine machine = folding(cluster, folds);
      machine.options.algorithm = Algorithm::ring;
      const ParallelOptions options{
          .replicas = replicas, .stages = stages, .micro_batches = 4, .bucket_bytes = 4 << 20, .lanes = "in-order"};
      const StepPlanner planner(work, options, machine, {}, 4);
      const PredictedStep step = planner.predict(planner.choices()[0]);
      EXPECT_EQ(step.copies.share_outside, folds);
      return step.step_ns();
    };
    const std::int64_t all = step_ns(false), folded = step_ns(true);
    EXPECT_NEAR(static_cast<double>(folded) / static_cast<double>(all), 1, 0.02) << folded << " against " << all;
  }
}

}  // namespace
}  // namespace overtake::tests
