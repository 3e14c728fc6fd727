#include "plan/lanes/join_gradients.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace overtake {
namespace {

constexpr double kWorthwhile = 0.98;

}  // namespace

std::vector<TaskId> gradient_partners(const Graph& graph) {
  const auto key_of = [&](TaskId t) {
    const Task& task = graph.tasks[t];
    return std::tuple(task.layer, task.op, task.device, task.micro_batch);
  };
  std::map<std::tuple<LayerId, Op, std::uint16_t, std::uint32_t>, TaskId> input_grads;
  for (TaskId t = 0; t < graph.tasks.size(); ++t)
    if (graph.tasks[t].kind == Kind::input_grad) input_grads[key_of(t)] = t;
  const Dependencies deps = dependencies(graph);
  const auto waits_for = [&](TaskId a, TaskId b) { return std::ranges::find(deps.of(a), b) != deps.of(a).end(); };
  std::vector<TaskId> partners(graph.tasks.size(), kNone);
  for (TaskId t = 0; t < graph.tasks.size(); ++t) {
    if (graph.tasks[t].kind != Kind::weight_grad) continue;
    const auto found = input_grads.find(key_of(t));
    if (found != input_grads.end() && !waits_for(t, found->second) && !waits_for(found->second, t))
      partners[t] = found->second;
  }
  return partners;
}

Plan join_gradients(Plan plan, const Profile& profile) {
  if (profile.joint_ns.empty()) return plan;
  const std::vector<TaskId> partners = gradient_partners(plan.graph);
  const auto is_faster = [&](TaskId weight_grad, TaskId input_grad) {
    const std::int64_t apart = profile.alone_ns[weight_grad] + profile.alone_ns[input_grad];
    const std::int64_t joint = profile.joint_ns[weight_grad];
    return partners[weight_grad] == input_grad && joint > 0 &&
           static_cast<double>(joint) < kWorthwhile * static_cast<double>(apart) &&
           plan.graph.tasks[weight_grad].is_delayed == plan.graph.tasks[input_grad].is_delayed;
  };
  for (const Lane& lane : plan.lanes)
    for (std::size_t i = 1; i < lane.tasks.size(); ++i) {
      const TaskId a = lane.tasks[i - 1], b = lane.tasks[i];
      if (!is_faster(a, b) && !is_faster(b, a)) continue;
      plan.joins.push_back({a, b});
      ++i;
    }
  std::ranges::sort(plan.joins);
  return plan;
}

Profile joined_times(const Plan& plan, Profile profile) {
  for (const Join& j : plan.joins) {
    std::int64_t &a = profile.alone_ns[j.first], &b = profile.alone_ns[j.second];
    const std::int64_t joint = std::max(profile.joint_ns[j.first], profile.joint_ns[j.second]);
    const std::int64_t first = (a + b) > 0 ? a * joint / (a + b) : 0;
    a = first;
    b = joint - first;
  }
  return profile;
}

}  // namespace overtake
