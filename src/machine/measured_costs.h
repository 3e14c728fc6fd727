#pragma once
// Costs of one step that were measured, or read back from a plan file.

#include <vector>

#include "machine/profile.h"
#include "overtake/cost_model.h"

namespace overtake {

class MeasuredCosts final : public CostModel {
 public:
  // For each kind of device, the costs of the step's tasks; empty for a kind that has no part in the run.
  MeasuredCosts(const Graph& step, std::vector<std::vector<TaskCost>> by_kind);
  // A user error for a step of other tasks, an internal one for a kind that was not measured.
  std::vector<TaskCost> costs(const Graph& step, std::uint32_t kind) const override;

 private:
  std::vector<std::vector<TaskCost>> by_kind_;
  std::vector<std::uint64_t> signatures_;  // of the measured step's tasks, one by one
};

// The same numbers in the two forms in which measuring and planning have them.
std::vector<TaskCost> costs_of(const Profile& profile);
Profile profile_of(const std::vector<TaskCost>& costs);

}  // namespace overtake
