#pragma once
// Puts input and weight gradients of a layer together again where they stayed neighbours.

#include "machine/profile.h"
#include "overtake/plan.h"

namespace overtake {

// For each weight gradient, the input gradient of its layer that it could be joined with: of the same op, neither
// waiting for the other; kNone elsewhere.
std::vector<TaskId> gradient_partners(const Graph& graph);

// Joins those that are neighbours on a lane and faster as one by what was measured. Before memory is placed: what runs
// at once cannot share bytes.
Plan join_gradients(Plan plan, const Profile& profile);

// The profile with the times of joined tasks cut to what they take as one.
Profile joined_times(const Plan& plan, Profile profile);

}  // namespace overtake
