#pragma once
// What the devices of a plan say to one another: its transfer tasks put together.

#include <cstdint>
#include <span>
#include <vector>

#include "overtake/plan.h"
#include "sim/collective_lanes.h"

namespace overtake {

// A send with its recv, or the members of a collective.
struct PlanTransfer {
  Operation operation = Operation::send_recv;
  std::uint8_t priority = 0;             // higher first
  std::int64_t bytes = 0;                // of the whole vector
  std::uint32_t first = 0, members = 0;  // of PlanTransfers::tasks
};

struct PlanTransfers {
  std::vector<PlanTransfer> list;
  std::vector<TaskId> tasks;            // of each transfer by rank: send and recv, or by device of the cluster
  std::vector<std::uint32_t> transfer;  // per task of the plan: which it takes part in, or kNone
  std::vector<std::uint32_t> rank;      // and as which
  std::vector<std::uint32_t> device;    // per entry of `tasks`, of the cluster

  std::span<const TaskId> tasks_of(const PlanTransfer& t) const { return std::span(tasks).subspan(t.first, t.members); }
  std::span<const std::uint32_t> devices_of(const PlanTransfer& t) const {
    return std::span(device).subspan(t.first, t.members);
  }
};

// Of the tasks on the plan's lanes. `devices` are the cluster's, per device of the plan. An internal error names a task
// whose partners are not there, or do not agree with it.
PlanTransfers transfers_of(const Plan& plan, std::span<const std::uint32_t> devices);

}  // namespace overtake
