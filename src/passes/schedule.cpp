#include "passes/schedule.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace overtake {
namespace {

Plan plan_of(Graph graph, std::string schedule, std::size_t lanes) {
  Plan plan;
  plan.graph = std::move(graph);
  plan.schedule = std::move(schedule);
  plan.lanes.resize(lanes);
  return plan;
}

// Walks both lanes through the step on a model of time: a task beside another runs at its one-core time, one that runs
// alone is helped by the other lane's core.
class ListScheduler {
 public:
  ListScheduler(const Graph& graph, const Profile& profile, const OutOfOrderOptions& options)
      : graph_(graph),
        profile_(profile),
        options_(options),
        deps_(dependencies(graph)),
        next_(reversed(deps_)),
        is_deferrable_(deferrable_tasks(graph, deps_)),
        end_ns_(graph.tasks.size(), 0),
        waiting_(graph.tasks.size()) {
    for (TaskId t = 0; t < graph.tasks.size(); ++t) {
      waiting_[t] = static_cast<std::uint32_t>(deps_.of(t).size());
      if (!is_deferrable_[t])
        critical_.push_back(t);
      else if (waiting_[t] == 0)
        ready_.insert(rank(t));
    }
  }

  std::vector<Lane> run() {
    std::vector<Lane> lanes(2);
    std::size_t done = 0, head = 0;
    while (done < graph_.tasks.size()) {
      // The side lane works as long as it is behind the main lane and has something ready at its time.
      if (!ready_.empty() && clock_[1] <= clock_[0]) {
        take(lanes, 1, pop_ready(), done);
        continue;
      }
      const bool must_help = ready_.size() > options_.max_waiting;
      if (head < critical_.size() && waiting_[critical_[head]] == 0 && !must_help) {
        take(lanes, 0, critical_[head++], done);
        continue;
      }
      OVERTAKE_CHECK(!ready_.empty(), "no task can run next");
      take(lanes, 0, pop_ready(), done);
    }
    return lanes;
  }

 private:
  // Updates go first, while their gradient is warm and to free it; then the weight gradient that has waited longest.
  std::pair<int, TaskId> rank(TaskId t) const { return {graph_.tasks[t].kind == Kind::update ? 0 : 1, t}; }

  TaskId pop_ready() {
    const TaskId t = ready_.begin()->second;
    ready_.erase(ready_.begin());
    return t;
  }

  void take(std::vector<Lane>& lanes, std::size_t lane, TaskId t, std::size_t& done) {
    std::int64_t start = clock_[lane];
    for (const TaskId before : deps_.of(t)) start = std::max(start, end_ns_[before]);
    const bool is_alone = clock_[1 - lane] <= start && ready_.empty();
    end_ns_[t] = start + (is_alone ? profile_.alone_ns[t] : profile_.beside_ns[t]);
    clock_[lane] = end_ns_[t];
    lanes[lane].tasks.push_back(t);
    ++done;
    for (const TaskId after : next_.of(t))
      if (--waiting_[after] == 0 && is_deferrable_[after]) ready_.insert(rank(after));
  }

  const Graph& graph_;
  const Profile& profile_;
  const OutOfOrderOptions& options_;
  Dependencies deps_, next_;
  std::vector<char> is_deferrable_;
  std::vector<std::int64_t> end_ns_;
  std::vector<std::uint32_t> waiting_;
  std::vector<TaskId> critical_;            // in graph order
  std::set<std::pair<int, TaskId>> ready_;  // deferrable, all that they wait for is planned
  std::array<std::int64_t, 2> clock_{0, 0};
};

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

Plan schedule_out_of_order(Graph graph, const Profile& profile, const OutOfOrderOptions& options) {
  OVERTAKE_CHECK(profile.alone_ns.size() == graph.tasks.size() && profile.beside_ns.size() == graph.tasks.size(),
                 "the profile is of another graph");
  Plan plan = plan_of(std::move(graph), "ooo", 0);
  plan.lanes = ListScheduler(plan.graph, profile, options).run();
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
