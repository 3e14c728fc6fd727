#pragma once
// The ways to put the tasks of one device on lanes that are worth a try: in order, with gradients joined, and out of
// order on one side lane or two, with and without a search.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "overtake/program.h"
#include "overtake/task_cost.h"

namespace overtake {

struct LaneOptions {
  std::string schedule = "auto";                   // or in-order, ooo
  std::size_t most_lanes = 1;                      // of the device, that can run at the same time
  std::optional<std::uint64_t> memory_cap = {};    // none: out of order may take a tenth more than in order
  std::optional<std::uint64_t> search_tries = {};  // none: what takes a few seconds for each number of lanes
  std::function<bool()> is_cancelled = {};         // then there are fewer choices
};

// In order first, whose memory decides what the others may take; it may be all there is. `costs` are those of the
// graph's tasks; none: nothing is known, and there is nothing but in order. `reason` says why there is only that.
std::vector<PlanChoice> lane_choices(const Graph& graph, const std::vector<TaskCost>& costs, const LaneOptions& options,
                                     std::string& reason);

// What is special about an order, in words: "out of order on 2 lanes, 3 tasks in the next step".
std::string describe(const TaskOrder& order);

}  // namespace overtake
