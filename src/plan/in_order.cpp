#include "plan/in_order.h"

#include <algorithm>
#include <numeric>

namespace overtake {
namespace {

Plan plan_of(Graph graph, std::string schedule, std::size_t lanes) {
  Plan plan;
  plan.graph = std::move(graph);
  plan.schedule = std::move(schedule);
  plan.lanes.resize(lanes);
  return plan;
}

}  // namespace

std::vector<char> deferrable_tasks(const Graph& graph, const Dependencies& deps) {
  const Dependencies next = reversed(deps);
  std::vector<char> flag(graph.tasks.size(), 0);
  for (TaskId t = static_cast<TaskId>(graph.tasks.size()); t-- > 0;) {
    const Kind kind = graph.tasks[t].kind;
    flag[t] = (kind == Kind::weight_grad || kind == Kind::update) &&
              std::ranges::all_of(next.of(t), [&](TaskId after) { return after > t && flag[after]; });
  }
  return flag;
}

Plan schedule_in_order(Graph graph) {
  Plan plan = plan_of(std::move(graph), "in-order", 1);
  plan.lanes[0].tasks.resize(plan.graph.tasks.size());
  std::iota(plan.lanes[0].tasks.begin(), plan.lanes[0].tasks.end(), TaskId{0});
  return plan;
}

Plan schedule_forward(Graph graph) {
  Plan plan = plan_of(std::move(graph), "forward", 1);
  Graph& g = plan.graph;
  plan.skipped.assign(g.tasks.size(), 0);
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].kind != Kind::forward) {
      plan.skipped[t] = 1;
      continue;
    }
    plan.lanes[0].tasks.push_back(t);
    if (!g.attrs_of(g.tasks[t]).has("training")) continue;
    Attrs attrs = g.attrs_of(g.tasks[t]);
    attrs.set("training", std::int64_t{0});
    g.tasks[t].attrs = g.add_attrs(attrs);
  }
  return plan;
}

}  // namespace overtake
