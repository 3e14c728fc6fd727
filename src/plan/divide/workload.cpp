#include "plan/divide/workload.h"

#include <algorithm>

namespace overtake {
namespace {

constexpr std::uint32_t kBlocksOfAPipeline = 64, kMostBlocks = 400;
constexpr std::uint64_t kMostPlanTasks = 1'500'000;  // of an outline

using Costs = std::vector<TaskCost>;  // by task

// Over the devices of a run.
Costs mean_of(const std::vector<Costs>& costs, std::span<const KindCount> kinds) {
  if (kinds.size() == 1) return costs[kinds[0].kind];
  Costs mean(costs[kinds[0].kind].size());
  std::int64_t devices = 0;
  for (const KindCount& k : kinds) devices += k.devices;
  for (TaskId t = 0; t < mean.size(); ++t) {
    TaskCost& m = mean[t];
    double load = 0;
    for (const KindCount& k : kinds) {
      const TaskCost& c = costs[k.kind][t];
      m.ns += k.devices * c.ns;
      m.compute_ns += k.devices * c.compute_ns;
      m.memory_ns += k.devices * c.memory_ns;
      m.beside_ns += k.devices * c.beside_ns;
      load += static_cast<double>(k.devices) * c.load;
    }
    m.load = load / static_cast<double>(devices);
    for (std::int64_t* sum : {&m.ns, &m.compute_ns, &m.memory_ns, &m.beside_ns}) *sum /= devices;
  }
  return mean;
}

}  // namespace

std::uint32_t block_limit(const ParallelOptions& options, bool recomputes) {
  if (options.stages == 1) return recomputes ? kBlocksOfAPipeline : kMostBlocks;
  return std::max(kBlocksOfAPipeline, 2 * std::max(2u, options.schedule_options.chunks) * options.stages);
}

std::int64_t samples_of(const Graph& graph) {
  for (const Buffer& b : graph.buffers)
    if (b.role == Role::input) return b.shape[0];
  return 0;
}

Workload make_workload(const Graph& step, const std::vector<std::vector<TaskCost>>& costs,
                       std::span<const KindCount> kinds, const ParallelOptions& parallel,
                       const WorkloadOptions& options) {
  const std::uint64_t pieces = std::uint64_t{parallel.replicas} * parallel.micro_batches;
  const std::uint64_t wanted = options.blocks.value_or(block_limit(parallel, options.recompute));
  const std::uint32_t simulated = options.kept_replicas > 0 ? options.kept_replicas : parallel.replicas;
  const std::uint64_t affordable = kMostPlanTasks / (5 * std::uint64_t{simulated} * parallel.micro_batches);
  const auto most =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(2 * parallel.stages, std::min(wanted, affordable)));
  const CutAt cut_at = options.recompute && !options.blocks ? CutAt::waists : CutAt::any;
  const BlockGraph kept = make_blocks(step, mean_of(costs, kinds), most, cut_at);
  const auto recomputed = [&](BlockGraph blocks) { return options.recompute ? recompute(std::move(blocks)) : blocks; };
  Workload out{.blocks = recomputed(kept), .samples = samples_of(step) * static_cast<std::int64_t>(pieces)};
  if (kinds.size() > 1) {
    out.by_kind.resize(costs.size());
    for (const KindCount& k : kinds) out.by_kind[k.kind] = recomputed(with_costs(kept, costs[k.kind])).work;
  }
  return out;
}

}  // namespace overtake
