#include "cli/workload.h"

#include <algorithm>

#include "base/error.h"
#include "cli/simulated_runs.h"
#include "cost/roofline.h"
#include "exec/backend.h"
#include "exec/gpu_target.h"
#include "models/network.h"
#include "passes/pipeline.h"

namespace overtake {
namespace {

constexpr std::uint32_t kBlocksOfAPipeline = 64, kRecomputedBlocks = 32;
constexpr std::uint32_t kMostBlocks = 400;       // of a model, data parallel
constexpr std::uint64_t kMostTasks = 1'500'000;  // of a plan

}  // namespace

Workload model_workload(const WorkloadSpec& spec, const RunSpec& run, const DeviceType& device) {
  ModelSettings settings = ModelSettings::parse(spec.settings);
  const auto pieces = static_cast<std::int64_t>(run.replicas) * run.micro_batches;
  if (spec.batch > 0) {
    if (spec.batch % pieces != 0)
      fail_user("--batch {}: it must be a multiple of --dp {} x --micro-batches {}", spec.batch, run.replicas,
                run.micro_batches);
    settings.set("batch", static_cast<double>(spec.batch / pieces));
  }
  Network network = load_network(spec.model, {.settings = settings});
  const Precision precision = precision_from_string(spec.precision);
  PassRunner runner;
  const OptimizerSettings optimizer{.kind = spec.optimizer == "sgd" ? OptimizerSettings::Kind::sgd
                                                                    : OptimizerSettings::Kind::adamw};
  if (spec.optimizer != "sgd" && spec.optimizer != "adamw")
    fail_user("--optimizer {}: choose sgd or adamw", spec.optimizer);
  const Graph step =
      build_training_graph(std::move(network.graph), GpuTarget(),
                           {.optimizer = optimizer, .bf16 = precision == Precision::bf16, .extra = {}}, runner);
  // Data parallel every layer counts; stages of a pipeline are cut of a few blocks each. What is computed again should
  // be much more than what is kept for it.
  const std::uint64_t wanted = spec.blocks > 0  ? spec.blocks
                               : spec.recompute ? std::max(kRecomputedBlocks, 2 * run.stages)
                               : run.stages > 1 ? std::max(kBlocksOfAPipeline, 4 * run.stages)
                                                : kMostBlocks;
  const std::uint64_t affordable = kMostTasks / (5 * static_cast<std::uint64_t>(pieces));
  const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(2 * run.stages, std::min(wanted, affordable)));
  std::int64_t samples = 0;
  for (const Buffer& b : step.buffers)
    if (b.role == Role::input && samples == 0) samples = b.shape[0];
  Workload out{.blocks = make_blocks(step, roofline(step, device, {.tf32 = precision == Precision::tf32}), most),
               .samples = samples * pieces};
  if (spec.recompute) out.blocks = recompute(std::move(out.blocks));
  return out;
}

}  // namespace overtake
