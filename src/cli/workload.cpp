#include "cli/workload.h"

#include <algorithm>

#include "base/error.h"
#include "cli/simulated_runs.h"
#include "cost/roofline.h"
#include "exec/backend.h"
#include "exec/gpu_target.h"
#include "models/network.h"
#include "passes/pipeline.h"
#include "train/profiling.h"

namespace overtake {
namespace {

constexpr std::uint32_t kBlocksOfAPipeline = 64, kRecomputedBlocks = 32;
constexpr std::uint32_t kMostBlocks = 400;       // of a model, data parallel
constexpr std::uint64_t kMostTasks = 1'500'000;  // of a plan

// The times measured; of what binds a task, and how much, what the description says.
std::vector<TaskWork> measured(const Graph& step, Backend& backend, std::vector<TaskWork> work) {
  const Profile profile = measure_profile(step, backend, 0);  // nothing side by side
  for (TaskId t = 0; t < work.size(); ++t) {
    work[t].ns = profile.alone_ns[t];
    work[t].compute_ns = std::min(work[t].compute_ns, work[t].ns);
    work[t].memory_ns = std::min(work[t].memory_ns, work[t].ns);
  }
  return work;
}

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
  if (spec.optimizer != "sgd" && spec.optimizer != "adamw")
    fail_user("--optimizer {}: choose sgd or adamw", spec.optimizer);
  if (!device.profile.empty())
    fail_user(
        "simulate: device {} is described by profile {}; give its rates, or measure tasks here with --measure cpu|cuda",
        device.name, device.profile);
  PassRunner runner;
  const PipelineOptions passes{
      .optimizer = {.kind = spec.optimizer == "sgd" ? OptimizerSettings::Kind::sgd : OptimizerSettings::Kind::adamw},
      .bf16 = precision == Precision::bf16,
      .parts = available_cores(),
      .extra = {}};
  const RooflineOptions parts{.tf32 = precision == Precision::tf32};
  Graph step;
  std::vector<TaskWork> work;
  if (spec.measure_on.empty()) {
    step = build_training_graph(std::move(network.graph), GpuTarget(), passes, runner);
    work = roofline(step, device, parts);
  } else {
    const auto backend = open_backend(spec.measure_on, {.precision = precision});
    step = build_training_graph(std::move(network.graph), backend->target(), passes, runner);
    work = measured(step, *backend, roofline(step, device, parts));
  }
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
  Workload out{.blocks = make_blocks(step, work, most), .samples = samples * pieces};
  if (spec.recompute) out.blocks = recompute(std::move(out.blocks));
  return out;
}

}  // namespace overtake
