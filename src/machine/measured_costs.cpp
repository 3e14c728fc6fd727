#include "machine/measured_costs.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace overtake {
namespace {

std::vector<std::uint64_t> signatures_of(const Graph& step) {
  const TaskClasses classes = classify(step);
  std::vector<std::uint64_t> signatures;
  for (const std::uint32_t c : classes.of) signatures.push_back(classes.signatures[c]);
  return signatures;
}

}  // namespace

MeasuredCosts::MeasuredCosts(const Graph& step, std::vector<std::vector<TaskCost>> by_kind)
    : by_kind_(std::move(by_kind)), signatures_(signatures_of(step)) {
  for (const std::vector<TaskCost>& costs : by_kind_)
    OVERTAKE_CHECK(costs.empty() || costs.size() == step.tasks.size(), "{} costs for {} tasks of {}", costs.size(),
                   step.tasks.size(), step.model);
}

std::vector<TaskCost> MeasuredCosts::costs(const Graph& step, std::uint32_t kind) const {
  OVERTAKE_CHECK(kind < by_kind_.size() && !by_kind_[kind].empty(), "devices of kind {} were not measured", kind);
  if (signatures_of(step) != signatures_)
    fail_user("`costs`: another step of {} was measured than the one that is planned; measure it with the same options",
              step.model);
  return by_kind_[kind];
}

std::vector<TaskCost> costs_of(const Profile& profile) {
  std::vector<TaskCost> costs(profile.alone_ns.size());
  for (TaskId t = 0; t < costs.size(); ++t) {
    costs[t].ns = profile.alone_ns[t];
    costs[t].load = profile.load[t];
    if (!profile.joint_ns.empty()) costs[t].joint_ns = profile.joint_ns[t];
  }
  return costs;
}

Profile profile_of(const std::vector<TaskCost>& costs) {
  Profile profile;
  for (const TaskCost& cost : costs) {
    profile.alone_ns.push_back(cost.ns);
    profile.load.push_back(cost.load);
    profile.joint_ns.push_back(cost.joint_ns);
    profile.in_order_ns += cost.ns;
  }
  return profile;
}

}  // namespace overtake
