#include "plan/detail_of.h"

#include <algorithm>

#include "base/error.h"
#include "plan/divide/clip.h"
#include "plan/divide/micro_batches.h"
#include "plan/divide/sync_batch_norm.h"
#include "plan/in_order.h"

namespace overtake {
namespace {

constexpr std::uint64_t kTasksForManySteps = 300'000;  // of an outline; of larger ones one step is simulated
constexpr int kStepsInARow = 4;

const Target& target_of(const Program& program) {
  OVERTAKE_CHECK(program.machine.target != nullptr, "the kernels of machine {} are not known", program.machine.name());
  return *program.machine.target;
}

int steps_in_a_row(const Program& program, const Workload& work) {
  if (program.machine.steps > 0) return program.machine.steps;
  const std::uint64_t tasks =
      std::uint64_t{program.spec.replicas} * program.spec.micro_batches * work.blocks.blocks.size() * 3;
  return tasks > kTasksForManySteps ? 1 : kStepsInARow;
}

// The whole step on one device, in order.
Detail one_device(const Program& program) {
  const ParallelOptions parallel = parallel_options(program.spec);
  if (parallel.micro_batches > 1)
    return divide_into_micro_batches(
        program.step,
        {.micro_batches = parallel.micro_batches, .groups = parallel.groups, .clip_norm = parallel.clip_norm},
        target_of(program));
  Detail whole{.plan = schedule_in_order(program.step), .inputs = {}, .losses = {}};
  const Graph& graph = whole.plan.graph;
  for (BufferId b = 0; b < graph.buffers.size(); ++b)
    if (graph.buffers[b].role == Role::input) whole.inputs.push_back({b, 0, 0});
  for (std::uint32_t i = 0; i < graph.losses.size(); ++i) whole.losses.push_back({0, 0, i});
  return whole;
}

Detail several_devices(const Program& program) {
  const ParallelOptions parallel = parallel_options(program.spec);
  const OutlinePlanner planner(program);
  const Target& target = target_of(program);
  Detail whole = make_detail(program.step, planner.work().blocks, planner->outline(program.choice()),
                             {.groups = parallel.groups, .target = &target});
  if (parallel.sync_batch_norm && !synchronise_batch_norms(whole, target))
    fail_user("`sync_batch_norm`: {} has no batch norm; leave it out", program.step.model);
  if (parallel.clip_norm > 0) clip_gradients(whole, program.step, parallel.clip_norm, target);
  return whole;
}

}  // namespace

Graph costed_graph(const Program& program) {
  return program.is_outlined() ? program.step : one_device(program).plan.graph;
}

Detail detail_of(const Program& program) {
  if (program.spec.recompute) fail_user("`recompute`: it is for plans that are simulated only; leave it out");
  Detail whole = program.has_several_devices() ? several_devices(program) : one_device(program);
  const PlanChoice& choice = program.choice();
  if (choice.order.is_given()) whole.plan = with_order(std::move(whole.plan.graph), choice.order);
  return whole;
}

OutlinePlanner::OutlinePlanner(const Program& program)
    : options_(parallel_options(program.spec)),
      work_(make_workload(program.step, program.costs, kinds_of(program.machine, program.devices), options_,
                          {.recompute = program.spec.recompute,
                           .blocks = program.spec.blocks > 0 ? std::optional(program.spec.blocks) : std::nullopt})),
      planner_(std::make_unique<StepPlanner>(work_, options_, program.machine, program.devices,
                                             steps_in_a_row(program, work_))) {}

}  // namespace overtake
