#pragma once
// What tasks take on the devices of a machine: measured, computed from a description, or whatever a caller knows.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "overtake/graph.h"
#include "overtake/run_spec.h"
#include "overtake/task_cost.h"

namespace overtake {

class CostModel {
 public:
  virtual ~CostModel() = default;
  // For each task of a step, what it takes on a device of one kind: an index into the devices of the machine's cluster,
  // 0 for a machine that has none. The same step and kind give the same costs in every call.
  virtual std::vector<TaskCost> costs(const Graph& step, std::uint32_t kind) const = 0;
  // The training step of a model as devices of these kinds ran it when they were measured. None: the graph passes for
  // the machine's target make the step.
  virtual std::optional<Graph> measured_step(const Graph& /*model*/, const RunSpec& /*spec*/,
                                             std::span<const std::uint32_t> /*kinds*/) const {
    return {};
  }
};

}  // namespace overtake
