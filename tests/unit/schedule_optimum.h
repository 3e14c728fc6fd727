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

#include "overtake/plan.h"
#include "step_model.h"

namespace overtake {

class ScheduleOptimum : StepModel {
 public:
  ScheduleOptimum(const Graph& graph, const Profile& profile) : StepModel(graph, profile) {
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
  // Just after an event: tasks have ended, and nothing has been put in their place yet.
  struct Node {
    double ns = 0;
    std::uint32_t critical = 0;                     // started
    std::uint32_t ended = 0;                        // critical tasks
    std::uint32_t started = 0, done = 0, late = 0;  // bits of deferred tasks
    std::uint32_t main = kNone, side = kNone;       // rows that run; see row_of
    double main_left = 0, side_left = 0;
    std::uint32_t wanted = kNone;  // what the main lane waits to start
    // Bits: what the side lane may start now. A hold is until a critical task, so after another one of the main lane
    // it is only what waited for that.
    std::uint32_t may_start = ~0u;
  };
  static constexpr std::uint32_t kFinished = kNone - 1;  // wanted: nothing more
  struct Start {
    TaskId task;
    bool is_side, is_delayed;
    TaskId hold;
  };

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

  bool is_done(const Node& n, std::uint32_t mask) const { return (n.done & mask) == mask; }

  // Whether the next critical task must wait: a late task, or what follows one, has yet to end before it.
  bool is_blocked(const Node& n) const {
    for (std::uint32_t j = 0; j < deferred_.size(); ++j) {
      if (deferred_[j].deadline > n.critical || (n.done >> j & 1) != 0 || !deferred_[j].may_delay) continue;
      if (((1u << j | deferred_[j].leaders) & n.late) != 0) return true;
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
      // To hold it back until the critical task that ended last does no harm if it could not have gone before.
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
    n.main_left -= has_main ? step * main_rate : 0;
    n.side_left -= has_side ? step * side_rate : 0;
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

  std::vector<std::vector<double>> costs_;  // by how many critical tasks have ended; made when first needed
  double bound_ns_ = 0, best_ns_ = std::numeric_limits<double>::max();
  std::uint64_t nodes_ = 0, most_nodes_ = 0;
  std::vector<Start> path_, best_path_;
  std::unordered_map<std::uint64_t, double> seen_;
};

}  // namespace overtake
