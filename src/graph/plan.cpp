#include "overtake/plan.h"

#include <algorithm>

#include "base/error.h"
#include "graph/place.h"

namespace overtake {

Dependencies dependencies(const Plan& plan) {
  Dependencies deps = dependencies(plan.graph);
  if (plan.waits.empty()) return deps;
  std::vector<std::pair<TaskId, TaskId>> edges;
  for (TaskId t = 0; t < plan.graph.tasks.size(); ++t)
    for (const TaskId before : deps.of(t)) edges.emplace_back(t, before);
  for (const Wait& wait : plan.waits) edges.emplace_back(wait.after, wait.before);
  return dependencies_from(std::move(edges), plan.graph.tasks.size());
}

bool has_delayed_tasks(const Plan& plan) {
  return std::ranges::any_of(plan.graph.tasks, [](const Task& t) { return t.is_delayed; });
}

TaskId Plan::joined_to(TaskId first) const {
  const auto at = std::ranges::lower_bound(joins, first, {}, &Join::first);
  return at != joins.end() && at->first == first ? at->second : kNone;
}

HappensBefore happens_before(const Plan& plan, const Dependencies& deps) {
  const std::size_t n = plan.graph.tasks.size();
  HappensBefore order;
  order.lanes = plan.lanes.size();
  order.lane_of.assign(n, kNone);
  order.place_of.assign(n, kNone);
  order.seen.assign(n * order.lanes, 0);
  for (std::uint32_t l = 0; l < order.lanes; ++l) {
    const auto& tasks = plan.lanes[l].tasks;
    for (std::uint32_t i = 0; i < tasks.size(); ++i) {
      order.lane_of[tasks[i]] = l;
      order.place_of[tasks[i]] = i;
    }
  }

  // Walk the lanes as an executor would; a task's clock is the largest of its predecessors', each counted as seen.
  const auto absorb = [&](TaskId into, TaskId before) {
    for (std::size_t l = 0; l < order.lanes; ++l) {
      auto& mine = order.seen[std::size_t{into} * order.lanes + l];
      mine = std::max(mine, order.seen[std::size_t{before} * order.lanes + l]);
    }
    auto& own = order.seen[std::size_t{into} * order.lanes + order.lane_of[before]];
    // Of an asynchronous lane, only when those before it have ended too.
    if (!plan.lanes[order.lane_of[before]].is_asynchronous || own == order.place_of[before])
      own = std::max(own, order.place_of[before] + 1);
  };
  std::vector<char> done(n, 0);
  std::vector<std::size_t> head(order.lanes, 0);
  const auto can_run = [&](TaskId before) { return done[before] || order.lane_of[before] == kNone; };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t l = 0; l < order.lanes; ++l) {
      const auto& tasks = plan.lanes[l].tasks;
      while (head[l] < tasks.size()) {
        const TaskId t = tasks[head[l]], joined = plan.joined_to(t);
        if (!std::ranges::all_of(deps.of(t), can_run) ||
            (joined != kNone && !std::ranges::all_of(deps.of(joined), can_run)))
          break;
        if (head[l] > 0 && !plan.lanes[l].is_asynchronous) absorb(t, tasks[head[l] - 1]);
        for (const TaskId both : {t, joined})
          for (const TaskId before : both == kNone ? std::span<const TaskId>{} : deps.of(both))
            if (order.lane_of[before] != kNone) absorb(t, before);
        done[t] = 1;
        order.topological.push_back(t);
        ++head[l];
        moved = true;
        if (joined == kNone) continue;
        // They start together, so neither is before the other.
        std::copy_n(order.seen.begin() + std::ptrdiff_t(std::size_t{t} * order.lanes), order.lanes,
                    order.seen.begin() + std::ptrdiff_t(std::size_t{joined} * order.lanes));
        done[joined] = 1;
        order.topological.push_back(joined);
        ++head[l];
      }
    }
  }
  for (std::size_t l = 0; l < order.lanes; ++l)
    OVERTAKE_CHECK(head[l] == plan.lanes[l].tasks.size(), "deadlock: lane {} waits for ever at task {}", l,
                   plan.graph.task_name(plan.lanes[l].tasks[head[l]]));
  return order;
}

std::vector<BufferUse> buffer_uses(const Plan& plan) {
  const Graph& g = plan.graph;
  std::vector<BufferUse> uses(g.buffers.size());
  for (const Lane& lane : plan.lanes) {
    for (const TaskId t : lane.tasks) {
      for (const BufferId b : g.reads(t)) {
        if (b == kNone) continue;
        uses[b].is_used = true;
        if (uses[b].readers.empty() || uses[b].readers.back() != t) uses[b].readers.push_back(t);
      }
      for (const BufferId b : g.writes(t)) {
        if (b == kNone) continue;
        uses[b].is_used = true;
        uses[b].writer = t;
      }
    }
  }
  for (BufferId b = 0; b < uses.size(); ++b) {
    const Role role = g.buffers[b].role;
    uses[b].is_whole_step = is_persistent(role) || role == Role::input || role == Role::output;
    // Persistent buffers keep their place in every plan of a graph, used there or not.
    if (is_persistent(role)) uses[b].is_used = true;
    const auto is_delayed = [&](TaskId t) { return g.tasks[t].is_delayed; };
    uses[b].is_carried = !uses[b].is_whole_step && uses[b].writer != kNone && !is_delayed(uses[b].writer) &&
                         std::ranges::any_of(uses[b].readers, is_delayed);
  }
  return uses;
}

namespace {

// Every use of `a` is certain to have ended when `b` is written; `except` may be the one that writes it.
bool is_dead_before(const HappensBefore& order, const BufferUse& a, const BufferUse& b, bool may_die_in_writing) {
  if (a.is_whole_step || b.is_whole_step || b.writer == kNone) return false;
  const auto has_ended = [&](TaskId t) {
    return order.is_before(t, b.writer) || (may_die_in_writing && t == b.writer);
  };
  return (a.writer == kNone || has_ended(a.writer)) && std::ranges::all_of(a.readers, has_ended);
}

// What the last step carried over in `a` has been read when `b` is written.
bool is_read_before(const Graph& g, const HappensBefore& order, const BufferUse& a, const BufferUse& b) {
  return b.writer != kNone && std::ranges::all_of(a.readers, [&](TaskId t) {
           return !g.tasks[t].is_delayed || order.is_before(t, b.writer);
         });
}

}  // namespace

bool may_share_bytes(const Plan& plan, const HappensBefore& order, const std::vector<BufferUse>& uses, BufferId a,
                     BufferId b) {
  const auto writer_of = [&](BufferId buffer) { return uses[buffer].writer; };
  if (are_side_by_side(plan.graph, a, b) || show_the_same(plan.graph, writer_of, a, b)) return true;
  const auto is_declared = [&](BufferId from, BufferId to) {
    return std::binary_search(plan.shares.begin(), plan.shares.end(), Share{from, to});
  };
  const auto is_allowed = [&](BufferId from, BufferId to) {
    const bool declared = is_declared(from, to);
    const bool is_overwritten = is_persistent(plan.graph.buffers[from].role) && uses[from].writer != kNone;
    if (declared && plan.graph.tasks[uses[to].writer].op == Op::reshape && !is_overwritten) return true;
    if (uses[from].is_carried) return false;
    if (uses[to].is_carried && !is_read_before(plan.graph, order, uses[to], uses[from])) return false;
    return is_dead_before(order, uses[from], uses[to], declared);
  };
  return is_allowed(a, b) || is_allowed(b, a);
}

}  // namespace overtake
