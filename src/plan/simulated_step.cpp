#include "plan/simulated_step.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "machine/measured_costs.h"
#include "plan/compile.h"
#include "plan/detail_of.h"
#include "plan/lanes/join_gradients.h"
#include "sim/lane_simulator.h"

namespace overtake {
namespace {

constexpr int kStepsInARowOfOne = 4;  // on one device: the first may differ from those that follow

std::string name_of(const RunSpec& spec, const PlanChoice& choice) {
  std::vector<std::string> parts;
  if (spec.stages > 1) parts.push_back(spec.pipeline == "search" ? "search" : choice.schedule.name);
  if (spec.replicas > 1)
    parts.push_back(choice.reduce == "first-k" ? "first-k " + to_string(choice.first_k) : choice.reduce);
  if (parts.empty()) return spec.recompute ? "one device" : choice.name;
  if (!choice.side.tasks.empty()) parts.push_back("side lanes");
  return fmt::format("{}", fmt::join(parts, " + "));
}

// All lanes of one device, with what each task takes there.
PredictedStep on_all_lanes(const Program& program) {
  Outline outline;
  outline.plan = detail_of(program).plan;
  outline.micro_batches = program.spec.micro_batches;
  const std::uint32_t kind = kinds_of(program.machine, program.devices).at(0).kind;
  if (kind < program.costs.size()) outline.work = program.costs[kind];
  outline.work.resize(outline.plan.graph.tasks.size());
  if (program.machine.has_devices()) {
    const int steps = program.machine.steps;
    return predict_step(std::move(outline), program.machine, program.devices, steps > 0 ? steps : kStepsInARowOfOne);
  }
  const Profile profile = profile_of(outline.work);
  PredictedStep out{.outline = std::move(outline), .devices = {0}};
  out.result.trace = simulate(out.outline.plan, joined_times(out.outline.plan, profile));
  out.result.is_finished = true;
  return out;
}

SimulatedStep named(SimulatedStep out) {
  out.step.outline.plan.schedule = out.name;
  return out;
}

}  // namespace

SimulatedStep simulated_step(const Program& program) {
  if (program.costs.empty())
    fail_user(
        "`program {}`: nothing is known of what its tasks take on machine {}; compile it for a machine that was "
        "measured, or that has a cost model",
        program.model.model, program.machine.name());
  const PlanChoice& choice = program.choice();
  return named({name_of(program.spec, choice), choice.reason,
                program.is_outlined() ? OutlinePlanner(program)->predict(choice) : on_all_lanes(program)});
}

SimulatedStep simulated_step(const Workload& work, const RunSpec& spec, const Machine& machine) {
  const ParallelOptions parallel = parallel_options(spec);
  const StepPlanner planner(work, parallel, machine, devices_for(spec, machine), machine.steps);
  const PlanChoice choice = planner.choices()[0];
  const std::string name = spec.replicas * spec.stages > 1 ? name_of(spec, choice) : "one device";
  return named({name, choice.reason, planner.predict(choice)});
}

}  // namespace overtake
