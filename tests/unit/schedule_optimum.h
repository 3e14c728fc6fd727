#pragma once
// The best schedule of a small training graph on two lanes, by branch and bound over what could start next at every
// moment at which a task ends. Knows nothing of arrangements and searches: only the graph, times, loads, and the rules.
//
// The rules: critical tasks run on the main lane in graph order. A weight gradient or update runs on the main lane
// between critical tasks, or on the side lane in any order, there also held back until some critical task has ended;
// in its own step or, where verify() allows it, in the one after.
//
// Bounds come from the linear program that pairs parts of tasks with one another as if order did not matter beyond
// when two can meet at all: the time saved is at most its optimum. Its dual prices bound what is left at every node.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "graph/plan.h"
#include "pair_program.h"
#include "sim/lane_simulator.h"

namespace overtake {

class ScheduleOptimum {
 public:
  ScheduleOptimum(const Graph& graph, const Profile& profile) : graph_(graph), profile_(profile) {
    find_windows();
    costs_.resize(critical_.size() + 1);
    costs_[0] = costs_after(0);
    bound_ns_ = left({});
  }

  // No schedule is faster.
  double bound_ns() const { return bound_ns_; }

  enum class Answer { found, none, gave_up };
  // The best schedule that takes less than `limit`, if there is one.
  Answer solve(double limit, std::uint64_t most_nodes) {
    best_ns_ = limit;
    nodes_ = 0;
    most_nodes_ = most_nodes;
    best_path_.clear();
    path_.clear();
    seen_.clear();
    visit({});
    if (nodes_ > most_nodes_) return Answer::gave_up;
    return best_path_.empty() ? Answer::none : Answer::found;
  }
  std::uint64_t nodes() const { return nodes_; }
  double best_ns() const { return best_ns_; }

  // The schedule last found.
  Plan plan() const {
    Plan plan;
    plan.graph = graph_;
    plan.schedule = "optimum";
    plan.lanes.resize(2);
    for (const Start& s : best_path_) {
      plan.lanes[s.is_side ? 1 : 0].tasks.push_back(s.task);
      if (s.is_delayed) plan.graph.tasks[s.task].is_delayed = true;
      if (s.hold != kNone) plan.waits.push_back({s.hold, s.task});
    }
    std::ranges::sort(plan.waits);
    return plan;
  }

 private:
  // A deferred task, and when it can run: in its own step once so many critical tasks have ended, or a step late until
  // a critical task that waits for it starts.
  struct Deferred {
    TaskId task = kNone;
    std::uint32_t ready = 0;
    std::uint32_t deadline = 0;
    bool may_delay = false;
    std::uint32_t leaders = 0;    // bits: deferred tasks of the same step that it waits for
    std::uint32_t followers = 0;  // bits: those that wait for it
  };

  // Just after an event: tasks have ended, and nothing has been put in their place yet.
  struct Node {
    double ns = 0;
    std::uint32_t critical = 0;                     // started
    std::uint32_t ended = 0;                        // critical tasks
    std::uint32_t started = 0, done = 0, late = 0;  // bits of deferred tasks
    std::uint32_t main = kNone, side = kNone;       // rows that run; see row_of
    double main_left = 0, side_left = 0;
    std::uint32_t wanted = kNone;   // what the main lane waits to start
    std::uint32_t may_start = ~0u;  // bits: what the side lane may start now; all but right after a main-lane deferred
  };
  static constexpr std::uint32_t kFinished = kNone - 1;
  struct Start {
    TaskId task;
    bool is_side, is_delayed;
    TaskId hold;
  };

  // Rows: critical tasks by place, then deferred ones.
  std::uint32_t row_of(std::uint32_t j) const { return static_cast<std::uint32_t>(critical_.size()) + j; }
  bool is_critical(std::uint32_t row) const { return row < critical_.size(); }
  TaskId task_of(std::uint32_t row) const {
    return is_critical(row) ? critical_[row] : deferred_[row - critical_.size()].task;
  }
  double time_of(std::uint32_t row) const { return static_cast<double>(profile_.alone_ns[task_of(row)]); }
  double load_of(std::uint32_t row) const { return profile_.load[task_of(row)]; }
  std::array<double, 2> rates(std::uint32_t a, std::uint32_t b) const {
    const std::array<double, 2> loads = {load_of(a), load_of(b)};
    std::array<double, 2> result{};
    rates_of(loads, result);
    return result;
  }

  void find_windows() {
    std::vector<std::uint32_t> place(graph_.tasks.size(), kNone), index(graph_.tasks.size(), kNone);
    for (TaskId t = 0; t < graph_.tasks.size(); ++t) {
      const Kind kind = graph_.tasks[t].kind;
      if (kind == Kind::weight_grad || kind == Kind::update) {
        index[t] = static_cast<std::uint32_t>(deferred_.size());
        deferred_.push_back({.task = t});
      } else {
        place[t] = static_cast<std::uint32_t>(critical_.size());
        critical_.push_back(t);
      }
    }
    OVERTAKE_CHECK(deferred_.size() <= 32, "{} deferred tasks", deferred_.size());
    const Dependencies deps = dependencies(graph_);
    for (Deferred& d : deferred_)
      for (const TaskId before : deps.of(d.task)) {
        if (index[before] == kNone) {
          d.ready = std::max(d.ready, place[before] + 1);
        } else {
          d.leaders |= 1u << index[before];
          deferred_[index[before]].followers |= 1u << index[d.task];
        }
      }
    for (Deferred& d : deferred_) {
      Graph late = graph_;
      late.tasks[d.task].is_delayed = true;
      for (std::size_t f = 0; f < deferred_.size(); ++f)
        if (d.followers >> f & 1) late.tasks[deferred_[f].task].is_delayed = true;
      try {
        verify(late);
      } catch (const InternalError&) {
        continue;
      }
      d.may_delay = true;
      d.deadline = static_cast<std::uint32_t>(critical_.size());
      const Dependencies next = reversed(dependencies(late));
      for (const TaskId after : next.of(d.task))
        if (place[after] != kNone) d.deadline = std::min(d.deadline, place[after]);
    }
  }

  bool can_meet_critical(const Deferred& d, std::uint32_t place) const {
    return place >= d.ready || (d.may_delay && place < d.deadline);
  }
  bool can_meet(std::size_t i, std::size_t j) const {
    const Deferred &a = deferred_[i], &b = deferred_[j];
    return (a.followers >> j & 1) == 0 && (b.followers >> i & 1) == 0;
  }

  // What each nanosecond of a row's work adds to the step at least, once so many critical tasks have ended.
  std::vector<double> costs_after(std::uint32_t ended) const {
    const auto rows = static_cast<std::uint32_t>(critical_.size() + deferred_.size());
    std::vector<double> limits;
    for (std::uint32_t r = 0; r < rows; ++r) limits.push_back(is_critical(r) && r < ended ? 0 : time_of(r));
    PairProgram program(limits);
    const auto add = [&](std::uint32_t a, std::uint32_t b) {
      const auto [x, y] = rates(a, b);
      if (x + y > 1) program.add(a, x, b, y, x + y - 1);
    };
    for (std::uint32_t j = 0; j < deferred_.size(); ++j) {
      for (std::uint32_t place = ended; place < critical_.size(); ++place)
        if (can_meet_critical(deferred_[j], place)) add(place, row_of(j));
      for (std::uint32_t i = 0; i < j; ++i)
        if (can_meet(i, j)) add(row_of(i), row_of(j));
    }
    std::vector<double> costs = program.prices();
    for (double& cost : costs) cost = 1 - cost;
    return costs;
  }

  // At least so long from here.
  double left(const Node& n) {
    const auto sum = [&](const std::vector<double>& cost) {
      double ns = 0;
      for (std::uint32_t r = n.critical; r < critical_.size(); ++r) ns += cost[r] * time_of(r);
      for (std::uint32_t j = 0; j < deferred_.size(); ++j)
        if ((n.started >> j & 1) == 0) ns += cost[row_of(j)] * time_of(row_of(j));
      if (n.main != kNone) ns += cost[n.main] * n.main_left;
      if (n.side != kNone) ns += cost[n.side] * n.side_left;
      return ns;
    };
    const double at_start = sum(costs_[0]);
    if (n.ns + at_start >= best_ns_) return at_start;
    if (costs_[n.ended].empty()) costs_[n.ended] = costs_after(n.ended);
    return std::max(at_start, sum(costs_[n.ended]));
  }

  bool is_late(const Node& n, std::uint32_t j) const { return (n.late >> j & 1) != 0; }
  bool is_done(const Node& n, std::uint32_t mask) const { return (n.done & mask) == mask; }

  // Whether the next critical task must wait: a late task, or what follows one, has yet to end before it.
  bool is_blocked(const Node& n) const {
    for (std::uint32_t j = 0; j < deferred_.size(); ++j) {
      if (deferred_[j].deadline > n.critical || (n.done >> j & 1) != 0 || !deferred_[j].may_delay) continue;
      if (is_late(n, j) || (deferred_[j].leaders & n.late) != 0) return true;
    }
    return false;
  }
  // Whether a deferred task can start, and if so whether as a late one. What its leaders do decides where it belongs.
  bool can_start(const Node& n, std::uint32_t j, bool* late) const {
    const Deferred& d = deferred_[j];
    if ((n.started >> j & 1) != 0) return false;
    const bool follows_late = (n.late & d.leaders) != 0, has_followers_started = (n.started & d.followers) != 0;
    *late = d.may_delay && n.critical <= d.deadline && !has_followers_started &&
            ((n.started & d.leaders) == 0 || (follows_late && is_done(n, d.leaders)));
    return *late || (n.ended >= d.ready && is_done(n, d.leaders) && !follows_late);
  }

  void start(Node& n, std::uint32_t row, bool on_side, bool late, TaskId hold) {
    if (on_side) {
      n.side = row;
      n.side_left = time_of(row);
    } else {
      n.main = row;
      n.main_left = time_of(row);
      n.wanted = kNone;
    }
    if (is_critical(row)) {
      ++n.critical;
    } else {
      const std::uint32_t bit = 1u << (row - critical_.size());
      n.started |= bit;
      if (late) n.late |= bit;
    }
    path_.push_back({task_of(row), on_side, late, hold});
  }

  void visit(const Node& n) {
    if (++nodes_ > most_nodes_ || n.ns + left(n) >= best_ns_ - 0.5) return;
    if (n.ended == critical_.size() && is_done(n, (deferred_.size() == 32 ? ~0u : (1u << deferred_.size()) - 1))) {
      best_ns_ = n.ns;
      best_path_ = path_;
      return;
    }
    if (is_seen(n)) return;
    n.main == kNone ? choose_main(n) : choose_side(n);
  }

  void choose_main(const Node& n) {
    if (n.wanted == kFinished) {
      choose_side(n);
      return;
    }
    if (n.wanted != kNone) {
      // What it waited for has ended; otherwise another choice covers it.
      bool late = false;
      const bool can = is_critical(n.wanted)
                           ? !is_blocked(n)
                           : can_start(n, n.wanted - static_cast<std::uint32_t>(critical_.size()), &late);
      if (can) try_main(n, n.wanted, late);
      return;
    }
    const bool has_critical = n.critical < critical_.size();
    if (has_critical && !is_blocked(n)) try_main(n, n.critical, false);
    for (std::uint32_t j = 0; j < deferred_.size(); ++j) {
      bool late = false;
      if (can_start(n, j, &late)) try_main(n, row_of(j), late);
    }
    if (n.side == kNone) return;
    // Waiting for what the side lane has under way, or for nothing more. (Waiting for what it has yet to start gains
    // nothing: the main lane could run that itself, at the same time.)
    if (!has_critical) wait_for(n, kFinished);
    if (has_critical && is_blocked(n)) wait_for(n, n.critical);
    for (std::uint32_t j = 0; j < deferred_.size(); ++j)
      if ((deferred_[j].leaders >> (n.side - critical_.size()) & 1) != 0) wait_for(n, row_of(j));
  }

  void try_main(const Node& n, std::uint32_t row, bool late) {
    Node next = n;
    start(next, row, false, late, kNone);
    choose_side(next);
    path_.pop_back();
  }

  void wait_for(const Node& n, std::uint32_t row) {
    Node next = n;
    next.wanted = row;
    choose_side(next);
  }

  void choose_side(const Node& n) {
    if (n.side != kNone) {
      advance(n);
      return;
    }
    for (std::uint32_t j = 0; j < deferred_.size(); ++j) {
      bool late = false;
      if ((n.may_start >> j & 1) == 0 || !can_start(n, j, &late)) continue;
      // Held back until the critical task that ended last, if it could have gone before.
      Node next = n;
      start(next, row_of(j), true, late, n.ended > 0 ? critical_[n.ended - 1] : kNone);
      advance(next);
      path_.pop_back();
    }
    advance(n);  // nothing until the next event
  }

  // To the next end of a task.
  void advance(Node n) {
    const bool has_main = n.main != kNone, has_side = n.side != kNone;
    if (!has_main && !has_side) return;
    const auto [main_rate, side_rate] = has_main && has_side ? rates(n.main, n.side) : std::array<double, 2>{1, 1};
    const double main_ns = has_main ? n.main_left / main_rate : std::numeric_limits<double>::max();
    const double side_ns = has_side ? n.side_left / side_rate : std::numeric_limits<double>::max();
    const double step = std::min(main_ns, side_ns);
    n.ns += step;
    n.may_start = ~0u;
    if (has_main) {
      n.main_left -= step * main_rate;
    }
    if (has_side) {
      n.side_left -= step * side_rate;
    }
    constexpr double kNothing = 1e-6;
    if (has_side && n.side_left < kNothing) {
      n.done |= 1u << (n.side - critical_.size());
      n.side = kNone;
      n.side_left = 0;
    } else if (!has_side && !is_critical(n.main)) {
      n.may_start = deferred_[n.main - critical_.size()].followers;
    }
    if (has_main && n.main_left < kNothing) {
      if (is_critical(n.main))
        ++n.ended;
      else
        n.done |= 1u << (n.main - critical_.size());
      n.main = kNone;
      n.main_left = 0;
    }
    visit(n);
  }

  // Whether the same was reached before, no later: the same tasks under way with the same left to do.
  bool is_seen(const Node& n) {
    const auto mix = [](std::uint64_t h, std::uint64_t x) {
      h = (h ^ x) * 0x9E3779B97F4A7C15ull;
      return h ^ (h >> 29);
    };
    std::uint64_t key = mix(mix(n.started, n.done), std::uint64_t{n.late} << 32 | n.may_start);
    key = mix(key, std::uint64_t{n.critical} << 32 | n.ended);
    key = mix(key, std::uint64_t{n.main} << 32 | n.side);
    key = mix(key, n.wanted);
    key = mix(key, static_cast<std::uint64_t>(std::llround((n.main_left + n.side_left) * 100)));
    const auto [it, is_new] = seen_.try_emplace(key, n.ns);
    if (is_new) return false;
    if (it->second <= n.ns) return true;
    it->second = n.ns;
    return false;
  }

  const Graph& graph_;
  const Profile& profile_;
  std::vector<TaskId> critical_;
  std::vector<Deferred> deferred_;
  std::vector<std::vector<double>> costs_;  // by how many critical tasks have ended; made when first needed
  double bound_ns_ = 0, best_ns_ = std::numeric_limits<double>::max();
  std::uint64_t nodes_ = 0, most_nodes_ = 0;
  std::vector<Start> path_, best_path_;
  std::unordered_map<std::uint64_t, double> seen_;
};

}  // namespace overtake
