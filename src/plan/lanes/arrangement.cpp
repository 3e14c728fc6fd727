#include "plan/lanes/arrangement.h"

#include <algorithm>

namespace overtake {

Arrangement::Arrangement(const DeferredWork& work, std::size_t tasks, std::size_t lanes)
    : work_(&work), lanes_(lanes), seats_(tasks) {
  for (const TaskId t : work.deferred()) seats_[t].place = work.ready(t);
}

std::uint32_t Arrangement::least_place(TaskId t, bool is_delayed) const { return is_delayed ? 0 : work_->ready(t); }

std::uint32_t Arrangement::most_place(TaskId t, bool is_delayed) const {
  return is_delayed ? work_->deadline(t) : static_cast<std::uint32_t>(work_->critical().size());
}

bool Arrangement::move(TaskId t, Seat seat) {
  if (seat.is_delayed && work_->deadline(t) == 0) return false;
  seat.place = std::clamp(seat.place, least_place(t, seat.is_delayed), most_place(t, seat.is_delayed));
  std::vector<std::pair<TaskId, Seat>> changes = {{t, seat}};
  // Later is: a step later, or at a later place of the same step.
  const auto is_later = [](const Seat& a, const Seat& b) {
    return a.is_delayed != b.is_delayed ? a.is_delayed : a.place > b.place;
  };
  for (const TaskId after : work_->followers(t)) {
    Seat to = seats_[after];
    // What follows one gradient alone stays with it.
    if (work_->leaders(after).size() == 1) to = {seat.lane, 0, seat.is_delayed};
    if (seat.is_delayed && !to.is_delayed) to = {to.lane, 0, true};
    if (to.is_delayed && work_->deadline(after) == 0) return false;
    to.place = std::max(to.place, least_place(after, to.is_delayed));
    if (to.is_delayed == seat.is_delayed) to.place = std::max(to.place, seat.place);
    if (to.place > most_place(after, to.is_delayed)) return false;
    if (to != seats_[after]) changes.emplace_back(after, to);
  }
  for (const TaskId before : work_->leaders(t))
    if (is_later(seats_[before], seat)) {
      Seat to = seats_[before];
      to.is_delayed = seat.is_delayed;
      to.place = std::clamp(seat.place, least_place(before, to.is_delayed), most_place(before, to.is_delayed));
      if (is_later(to, seat)) return false;
      changes.emplace_back(before, to);
    }
  for (const auto& [task, to] : changes) seats_[task] = to;
  return true;
}

std::vector<std::vector<TaskId>> Arrangement::lane_tasks() const {
  // On each lane by place, what is late first; then as in the graph.
  std::vector<std::vector<TaskId>> lanes(lanes_);
  for (const TaskId t : work_->deferred()) lanes[seats_[t].lane].push_back(t);
  for (std::size_t l = 0; l < lanes_; ++l)
    std::ranges::sort(lanes[l], [&](TaskId a, TaskId b) {
      const Seat &x = seats_[a], &y = seats_[b];
      // On the main lane both kinds stand among the same critical tasks.
      if (l > 0 && x.is_delayed != y.is_delayed) return x.is_delayed;
      if (x.place != y.place) return x.place < y.place;
      if (x.is_delayed != y.is_delayed) return x.is_delayed;
      return a < b;
    });
  std::vector<TaskId> main;
  main.reserve(work_->critical().size() + lanes[0].size());
  auto next = lanes[0].begin();
  for (std::uint32_t place = 0; place <= work_->critical().size(); ++place) {
    for (; next != lanes[0].end() && seats_[*next].place == place; ++next) main.push_back(*next);
    if (place < work_->critical().size()) main.push_back(work_->critical()[place]);
  }
  lanes[0] = std::move(main);
  return lanes;
}

std::vector<TaskId> Arrangement::holds() const {
  std::vector<TaskId> holds(seats_.size(), kNone);
  for (const TaskId t : work_->deferred())
    if (seats_[t].lane > 0 && seats_[t].place > least_place(t, seats_[t].is_delayed))
      holds[t] = work_->critical()[seats_[t].place - 1];
  return holds;
}

Plan Arrangement::plan(const Graph& graph) const {
  Plan plan;
  plan.graph = graph;
  plan.schedule = "ooo";
  for (const TaskId t : work_->deferred()) plan.graph.tasks[t].is_delayed = seats_[t].is_delayed;
  for (std::vector<TaskId>& tasks : lane_tasks()) plan.lanes.push_back({0, std::move(tasks)});
  const std::vector<TaskId> held = holds();
  for (TaskId t = 0; t < held.size(); ++t)
    if (held[t] != kNone) plan.waits.push_back({held[t], t});
  std::ranges::sort(plan.waits);
  // A lane that nothing is left on is none.
  std::erase_if(plan.lanes, [](const Lane& lane) { return lane.tasks.empty(); });
  return plan;
}

}  // namespace overtake
