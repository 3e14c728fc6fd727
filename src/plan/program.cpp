#include "plan/program.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {
namespace {

void verify_schedule(const Program& program, const PipelineSchedule& schedule) {
  const PipelineLayout& layout = schedule.layout;
  const std::uint32_t stages = program.spec.stages, micro_batches = program.spec.micro_batches;
  OVERTAKE_CHECK(schedule.orders.size() == stages, "orders for {} devices of a pipeline of {}", schedule.orders.size(),
                 stages);
  OVERTAKE_CHECK(
      layout.first_block.size() > 1 && layout.first_block[0] == 0 && std::ranges::is_sorted(layout.first_block),
      "chunks of {} do not follow one another", schedule.name);
  OVERTAKE_CHECK(!layout.device_of.empty(), "{} has no route", schedule.name);
  for (const std::vector<std::uint32_t>& route : layout.device_of) {
    OVERTAKE_CHECK(route.size() == layout.chunks(), "a route of {} of {} chunks", route.size(), layout.chunks());
    for (const std::uint32_t d : route) OVERTAKE_CHECK(d < stages, "device {} of a pipeline of {}", d, stages);
  }
  OVERTAKE_CHECK(layout.route_of.empty() || layout.route_of.size() == micro_batches, "routes of {} of {} micro-batches",
                 layout.route_of.size(), micro_batches);
  for (const std::uint32_t r : layout.route_of)
    OVERTAKE_CHECK(r < layout.device_of.size(), "route {} of {}", r, layout.device_of.size());
  for (const std::vector<ChunkTask>& order : schedule.orders)
    for (const ChunkTask& b : order)
      OVERTAKE_CHECK(b.chunk < layout.chunks() && b.micro_batch < micro_batches && b.kind <= Kind::weight_grad,
                     "chunk {} and micro-batch {} of {} x {}", b.chunk, b.micro_batch, layout.chunks(), micro_batches);
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
  const std::size_t tasks = graph.tasks.size();
  const auto check = [&](TaskId t) { OVERTAKE_CHECK(t < tasks, "task {} of {} in an order", t, tasks); };
  for (const Lane& lane : order.lanes) std::ranges::for_each(lane.tasks, check);
  for (const Wait& w : order.waits) check(std::max(w.before, w.after));
  for (const Join& j : order.joins) check(std::max(j.first, j.second));
  std::ranges::for_each(order.delayed, check);
  Plan plan;
  plan.graph = std::move(graph);
  plan.schedule = order.schedule;
  plan.lanes = order.lanes;
  plan.waits = order.waits;
  plan.joins = order.joins;
  for (Task& task : plan.graph.tasks) task.is_delayed = false;
  for (const TaskId t : order.delayed) plan.graph.tasks[t].is_delayed = true;
  return plan;
}

void verify(const Program& program) {
  verify(program.model);
  verify(program.step);
  const std::size_t devices = std::size_t{program.spec.replicas} * program.spec.stages;
  OVERTAKE_CHECK(!program.machine.has_devices() || program.devices.size() == devices, "{} devices for {} x {}",
                 program.devices.size(), program.spec.replicas, program.spec.stages);
  for (const std::uint32_t d : program.devices)
    OVERTAKE_CHECK(d < program.machine.topology.device_count, "device {} of machine {}, which has {}", d,
                   program.machine.name(), program.machine.topology.device_count);
  std::vector<std::uint32_t> sorted = program.devices;
  std::ranges::sort(sorted);
  OVERTAKE_CHECK(std::ranges::adjacent_find(sorted) == sorted.end(), "a device of the machine is given twice");
  OVERTAKE_CHECK(program.chosen < std::max<std::size_t>(1, program.choices.size()), "choice {} of {}", program.chosen,
                 program.choices.size());
  if (program.is_outlined())
    for (const std::vector<TaskCost>& kind : program.costs)
      OVERTAKE_CHECK(kind.empty() || kind.size() == program.step.tasks.size(), "{} costs of {} tasks", kind.size(),
                     program.step.tasks.size());
  for (const PlanChoice& choice : program.choices)
    if (!choice.schedule.orders.empty()) verify_schedule(program, choice.schedule);
}

}  // namespace overtake
