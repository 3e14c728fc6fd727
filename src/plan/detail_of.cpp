#include "plan/detail_of.h"

#include <algorithm>

#include "base/error.h"
#include "plan/divide/clip.h"
#include "plan/divide/micro_batches.h"
#include "plan/divide/replica_fold.h"
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

int steps_in_a_row(const Program& program, const Workload& work, std::uint32_t kept_replicas) {
  if (program.machine.steps > 0) return program.machine.steps;
  const std::uint64_t tasks = std::uint64_t{kept_replicas} * program.spec.micro_batches * work.blocks.blocks.size() * 3;
  return tasks > kTasksForManySteps ? 1 : kStepsInARow;
}

// The whole step on one device, in order.
Detail whole_step(const Graph& step) {
  Detail whole{.plan = schedule_in_order(step), .inputs = {}, .losses = {}};
  const Graph& graph = whole.plan.graph;
  for (BufferId b = 0; b < graph.buffers.size(); ++b)
    if (graph.buffers[b].role == Role::input) whole.inputs.push_back({b, 0, 0});
  for (std::uint32_t i = 0; i < graph.losses.size(); ++i) whole.losses.push_back({0, 0, i});
  return whole;
}

Detail task_by_task(const Program& program, const ParallelOptions& parallel) {
  if (!parallel.is_used()) return whole_step(program.step);
  const Target& target = target_of(program);
  if (parallel.devices() == 1)
    return divide_into_micro_batches(program.step,
                                     {.micro_batches = parallel.micro_batches,
                                      .groups = parallel.groups,
                                      .updates_wait_for_all = parallel.clip_norm > 0},
                                     target);
  const OutlinePlanner planner(program);
  return make_detail(program.step, planner.work().blocks, planner->outline(program.choice()),
                     {.groups = parallel.groups, .target = &target});
}

// From a program to the tasks of all its devices. The first pass begins with nothing; the others change what it made.
std::vector<Pass<Detail>> detail_passes(const Program& program) {
  const ParallelOptions parallel = parallel_options(program.spec);
  std::vector<Pass<Detail>> passes;
  passes.push_back({"detail", [&program, parallel](const Detail&) { return task_by_task(program, parallel); }});
  if (!parallel.is_used()) return passes;
  if (parallel.sync_batch_norm && parallel.devices() > 1)
    passes.push_back({"sync_batch_norm", [&program](Detail whole) {
                        return synchronise_batch_norms(std::move(whole), target_of(program));
                      }});
  if (parallel.clip_norm > 0)
    passes.push_back({"clip", [&program, norm = parallel.clip_norm](Detail whole) {
                        return clip_gradients(std::move(whole), program.step, norm, target_of(program));
                      }});
  if (parallel.devices() == 1) passes.push_back({"in_order", in_order_of_lane});
  return passes;
}

Detail with_own_order(Detail whole, const TaskOrder& order) {
  whole.plan = with_order(std::move(whole.plan.graph), order);
  return whole;
}

Detail made_by(const std::vector<Pass<Detail>>& passes, PassRunner& runner) {
  Detail whole;
  for (const Pass<Detail>& pass : passes) whole = runner.run(pass, std::move(whole));
  return whole;
}

}  // namespace

Graph costed_graph(const Program& program) {
  if (program.is_outlined()) return program.step;
  PassRunner runner;
  return made_by(detail_passes(program), runner).plan.graph;
}

Detail detail_of(const Program& program) {
  PassRunner runner;
  return detail_of(program, runner);
}

Detail detail_of(const Program& program, PassRunner& runner) {
  if (program.spec.recompute) fail_user("`recompute`: it is for plans that are simulated only; leave it out");
  std::vector<Pass<Detail>> passes = detail_passes(program);
  if (const TaskOrder& order = program.choice().order; order.is_given())
    passes.push_back({"order", [&order](Detail whole) { return with_own_order(std::move(whole), order); }});
  return made_by(passes, runner);
}

OutlinePlanner::OutlinePlanner(const Program& program)
    : options_(parallel_options(program.spec)),
      kept_(fold_replicas(options_, program.machine, program.devices).kept),
      work_(make_workload(program.step, program.costs, kinds_of(program.machine, program.devices), options_,
                          {.recompute = program.spec.recompute,
                           .blocks = program.spec.blocks > 0 ? std::optional(program.spec.blocks) : std::nullopt,
                           .kept_replicas = kept_})),
      planner_(std::make_unique<StepPlanner>(work_, options_, program.machine, program.devices,
                                             steps_in_a_row(program, work_, kept_))) {}

}  // namespace overtake
