#include "plan/own_order.h"

#include "base/error.h"
#include "graph/fingerprint.h"
#include "ops/check_task.h"
#include "overtake/simulate.h"
#include "plan/detail_of.h"
#include "plan/memory.h"

namespace overtake {
namespace {

// An order may say of any task that it is delayed.
Fingerprint without_delays(Graph graph) {
  for (Task& task : graph.tasks) task.is_delayed = false;
  return fingerprint(graph);
}

// What must hold for every plan holds for this one, or the user is told what does not.
void check_own(const Plan& own, const std::string& name, const Graph& step) {
  try {
    verify(own);
    check_tasks(own.graph);
  } catch (const InternalError& e) {
    fail_user("`own_order {}`: this order cannot run: {}; give every task of the step once, after what it reads", name,
              e.reason());
  }
  if (without_delays(own.graph) != without_delays(step))
    fail_user(
        "`own_order {}`: its graph is another than the step it was given; give the tasks of that graph an order, "
        "and change the graph in `extra_passes`",
        name);
}

}  // namespace

Program take_own_order(Program program, const std::function<Plan(const Graph& step)>& own_order) {
  const Graph step = costed_graph(program);
  const Plan own = own_order(step);
  const std::string name = own.schedule.empty() ? "own" : own.schedule;
  check_own(own, name, step);
  const TaskOrder order = order_of(own);
  program.choices = {{.name = name, .order = order, .peak_bytes = {place_memory(with_order(step, order)).arena_bytes}}};
  program.chosen = 0;
  if (!program.costs.empty()) program.choices[0].predicted_ns = simulate(program).trace.step_ns;
  return program;
}

}  // namespace overtake
