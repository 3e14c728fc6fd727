#pragma once
// Out of order on one device: weight gradients and their updates on lanes of their own, or late on the main lane, each
// beside the part of the step where it gains most, up to the next step's forward of its own layer.

#include <cstdint>
#include <functional>
#include <optional>

#include "machine/profile.h"
#include "overtake/plan.h"

namespace overtake {

struct JointOptions {
  std::size_t side_lanes = 1;
  bool may_delay = true;                         // into the next step
  std::optional<std::uint64_t> most_tries = {};  // of the search; none: as many as take a few seconds
  double most_memory = 0;                        // live bytes over those in order; 0: as many as there may be
  std::function<bool()> is_cancelled = {};
};

// Critical tasks keep their order on the first lane. Memory is not placed. `predicted_ns`, if given, gets what the
// model says of the plan.
Plan schedule_jointly(const Graph& graph, const Profile& profile, const JointOptions& options,
                      std::int64_t* predicted_ns = nullptr);

// Adds waits for side lanes to the main lane where, by the model, the side lane is done long since: what it has read is
// then certain to be dead and its memory can be used again. `slack` is how long since, as a part of the step.
Plan with_waits_for_memory(Plan plan, const Profile& profile, double slack);

}  // namespace overtake
