#include "plan/program.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace overtake {
namespace {

std::string ms_text(std::int64_t ns) {
  return ns > 0 ? fmt::format("{:.3f} ms", static_cast<double>(ns) * 1e-6) : std::string("-");
}

}  // namespace

TaskOrder order_of(const Plan& plan) {
  TaskOrder order{
      .schedule = plan.schedule, .lanes = plan.lanes, .waits = plan.waits, .joins = plan.joins, .delayed = {}};
  for (TaskId t = 0; t < plan.graph.tasks.size(); ++t)
    if (plan.graph.tasks[t].is_delayed) order.delayed.push_back(t);
  return order;
}

Plan with_order(Graph graph, const TaskOrder& order) {
  Plan plan;
  plan.graph = std::move(graph);
  plan.schedule = order.schedule;
  plan.lanes = order.lanes;
  plan.waits = order.waits;
  plan.joins = order.joins;
  for (Task& task : plan.graph.tasks) task.is_delayed = false;
  for (const TaskId t : order.delayed) plan.graph.tasks.at(t).is_delayed = true;
  return plan;
}

void verify(const Program& program) {
  verify(program.model);
  verify(program.step);
  const std::size_t devices = std::size_t{program.spec.replicas} * program.spec.stages;
  OVERTAKE_CHECK(!program.machine.has_devices() || program.devices.size() == devices, "{} devices for {} x {}",
                 program.devices.size(), program.spec.replicas, program.spec.stages);
  OVERTAKE_CHECK(program.chosen < std::max<std::size_t>(1, program.choices.size()), "choice {} of {}", program.chosen,
                 program.choices.size());
  for (const PlanChoice& choice : program.choices) {
    if (choice.schedule.orders.empty()) continue;
    OVERTAKE_CHECK(choice.schedule.orders.size() == program.spec.stages,
                   "{}: orders for {} devices of a pipeline of {}", choice.name, choice.schedule.orders.size(),
                   program.spec.stages);
  }
}

std::string table_of_choices(const Program& program) {
  std::string text = fmt::format("{:<36} {:>14} {:>14} {:>12}", "plan", "predicted", "measured", "memory");
  for (std::size_t i = 0; i < program.choices.size(); ++i) {
    const PlanChoice& c = program.choices[i];
    text += fmt::format("\n{:<36} {:>14} {:>14} {:>12}{}{}", c.name, ms_text(c.predicted_ns), ms_text(c.measured_ns),
                        c.peak_bytes > 0 ? format_bytes(static_cast<std::int64_t>(c.peak_bytes)) : "-",
                        i == program.chosen ? "  chosen" : "", c.fits ? "" : "  too large");
  }
  return text;
}

std::string print(const Program& program) {
  const RunSpec& spec = program.spec;
  return fmt::format("{}: {} tasks, {} x {} devices (data x pipeline) of {}, {} micro-batch{}\n{}\n{}{}", spec.model,
                     program.step.tasks.size(), spec.replicas, spec.stages, program.machine.name(), spec.micro_batches,
                     spec.micro_batches == 1 ? "" : "es", table_of_choices(program), program.reason,
                     program.reason.empty() ? "" : "\n");
}

}  // namespace overtake
