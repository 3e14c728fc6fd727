#include "plan/divide/micro_batches.h"

#include "base/error.h"
#include "plan/in_order.h"
#include "plan/pipeline/named.h"

namespace overtake {
Detail divide_into_micro_batches(const Graph& step, const MicroBatchOptions& options, const Target& target) {
  // On one device the order of blocks follows from the graph alone, so what they take does not matter.
  const std::vector<TaskCost> costs(step.tasks.size());
  const BlockGraph blocks = make_blocks(step, costs, static_cast<std::uint32_t>(step.tasks.size()));
  const PipelineProblem problem{.devices = 1, .micro_batches = options.micro_batches, .blocks = block_costs(blocks)};
  const Outline outline = make_outline(blocks, problem, make_schedule("1f1b", problem),
                                       {.updates_wait_for_all = options.updates_wait_for_all});
  return make_detail(step, blocks, outline, {.groups = options.groups, .target = &target});
}

Detail in_order_of_lane(Detail whole) {
  Graph graph = whole.plan.graph;
  std::size_t count = 0;
  for (const Lane& lane : whole.plan.lanes)
    for (const TaskId t : lane.tasks) graph.tasks[count++] = whole.plan.graph.tasks[t];
  OVERTAKE_CHECK(count == graph.tasks.size(), "lanes run {} of {} tasks", count, graph.tasks.size());
  whole.plan = schedule_in_order(std::move(graph));
  return whole;
}

}  // namespace overtake
