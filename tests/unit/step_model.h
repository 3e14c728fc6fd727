#pragma once
// A training step on two lanes in the terms of an exhaustive search: which tasks are critical, when each of the others
// can run, and what a nanosecond of each costs at least. From the graph and its dependencies alone.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "machine/profile.h"
#include "overtake/graph.h"
#include "pair_program.h"
#include "sim/lane_simulator.h"

namespace overtake {

class StepModel {
 public:
  StepModel(const Graph& graph, const Profile& profile) : graph_(graph), profile_(profile) { find_windows(); }

 protected:
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

  const Graph& graph_;
  const Profile& profile_;
  std::vector<TaskId> critical_;
  std::vector<Deferred> deferred_;
};

}  // namespace overtake
