#include "cli/workload.h"

#include <algorithm>

#include "base/error.h"
#include "cli/simulated_runs.h"
#include "cost/roofline.h"
#include "exec/backend.h"
#include "models/network.h"
#include "passes/pipeline.h"
#include "passes/target.h"

namespace overtake {
namespace {

constexpr std::uint32_t kBlocksOfAPipeline = 64;
constexpr std::uint32_t kMostBlocks = 400;       // of a model, data parallel
constexpr std::uint64_t kMostTasks = 1'500'000;  // of a plan

// Devices that are only described are taken to be GPUs in this: a bfloat16 copy of a weight is written by its update,
// once a step, and not made anew by every micro-batch.
class DescribedTarget final : public Target {
 public:
  explicit DescribedTarget(const Target& other) : other_(other) {}
  bool fuses_linear(std::string_view function) const override { return other_.fuses_linear(function); }
  ImageLayout image_layout(const Graph& graph, const Task& task) const override {
    return other_.image_layout(graph, task);
  }
  std::optional<OperandFormat> weight_format(const Graph& graph, const Task& task, std::size_t operand) const override {
    return other_.weight_format(graph, task, operand);
  }
  bool updates_write_copies() const override { return true; }
  std::int64_t scratch_bytes(const Graph& graph, const Task& task) const override {
    return other_.scratch_bytes(graph, task);
  }

 private:
  const Target& other_;
};

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
  const auto backend = open_backend("null", {.precision = precision == Precision::tf32 ? Precision::f32 : precision});
  PassRunner runner;
  const OptimizerSettings optimizer{.kind = spec.optimizer == "sgd" ? OptimizerSettings::Kind::sgd
                                                                    : OptimizerSettings::Kind::adamw};
  if (spec.optimizer != "sgd" && spec.optimizer != "adamw")
    fail_user("--optimizer {}: choose sgd or adamw", spec.optimizer);
  const Graph step =
      build_training_graph(std::move(network.graph), DescribedTarget(backend->target()),
                           {.optimizer = optimizer, .bf16 = precision == Precision::bf16, .extra = {}}, runner);
  // Data parallel every layer counts; stages of a pipeline are cut of a few blocks each.
  const std::uint64_t wanted = spec.blocks > 0  ? spec.blocks
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
