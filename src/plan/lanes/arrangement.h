#pragma once
// Where each deferred task of a step goes: a lane, a place, and whether a step later. What searches change and try.

#include <cstdint>
#include <vector>

#include "plan/lanes/deferred_work.h"
#include "sim/lane_simulator.h"

namespace overtake {

struct Seat {
  std::uint32_t lane = 0;   // 0: the main lane, between critical tasks
  std::uint32_t place = 0;  // not before so many critical tasks of the step it runs in have ended
  bool is_delayed = false;
  bool operator==(const Seat&) const = default;
};

class Arrangement {
 public:
  // Everything in its in-order place.
  Arrangement(const DeferredWork& work, std::size_t tasks, std::size_t lanes);

  const Seat& seat(TaskId t) const { return seats_[t]; }
  std::size_t lanes() const { return lanes_; }

  // Gives a task a seat, and moves along what must not come before it or be less late. False, with nothing changed, if
  // there is no legal way.
  bool move(TaskId t, Seat seat);

  bool operator==(const Arrangement& other) const { return seats_ == other.seats_; }
  std::vector<std::vector<TaskId>> lane_tasks() const;
  // Per task: the critical task that a task of a side lane is held back until, beyond what it waits for anyway.
  std::vector<TaskId> holds() const;
  // The plan's graph has the delays, its waits are the holds.
  Plan plan(const Graph& graph) const;

 private:
  std::uint32_t least_place(TaskId t, bool is_delayed) const;
  std::uint32_t most_place(TaskId t, bool is_delayed) const;

  const DeferredWork* work_;
  std::size_t lanes_;
  std::vector<Seat> seats_;  // by task; of deferred ones
};

}  // namespace overtake
