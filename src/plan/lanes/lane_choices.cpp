#include "plan/lanes/lane_choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "machine/measured_costs.h"
#include "plan/in_order.h"
#include "plan/lanes/join_gradients.h"
#include "plan/lanes/joint_schedule.h"
#include "plan/lanes/worthwhile.h"
#include "plan/memory.h"
#include "sim/lane_simulator.h"

namespace overtake {
namespace {

std::int64_t predicted_ns(const Plan& plan, const Profile& profile) {
  return simulate(plan, joined_times(plan, profile)).step_ns;
}

PlanChoice choice_of(std::string name, const Plan& placed, std::int64_t ns) {
  return {.name = std::move(name), .order = order_of(placed), .predicted_ns = ns, .peak_bytes = {placed.arena_bytes}};
}

// The plan within the memory cap: as it is, else with waits that let memory be used again sooner; none if neither does.
std::optional<Plan> within(const Plan& plan, const Profile& profile, std::uint64_t cap) {
  Plan placed = place_memory(plan);
  if (placed.arena_bytes <= cap) return placed;
  for (const double slack : {0.10, 0.05, 0.02, 0.0}) {
    placed = place_memory(with_waits_for_memory(plan, profile, slack));
    if (placed.arena_bytes <= cap) return placed;
  }
  return {};
}

// The best plan with so many side lanes that fits: the search gets less and less memory until it does.
std::optional<PlanChoice> joint_choice(const Graph& graph, const Profile& profile, JointOptions joint,
                                       std::uint64_t cap, double memory) {
  for (joint.most_memory = memory; joint.most_memory >= 1; joint.most_memory -= std::max(0.02, (memory - 1) / 4)) {
    if (auto plan = within(join_gradients(schedule_jointly(graph, profile, joint), profile), profile, cap))
      return choice_of(fmt::format("{} lanes", 1 + joint.side_lanes), *plan, predicted_ns(*plan, profile));
    if (joint.most_tries) *joint.most_tries /= 2;
  }
  return {};
}

// Whether any task leaves something to others that run beside it, or is faster together with another.
bool can_gain(const Profile& profile) {
  return std::ranges::any_of(profile.load, [](double load) { return load < 1; }) ||
         std::ranges::any_of(profile.joint_ns, [](std::int64_t ns) { return ns > 0; });
}

}  // namespace

std::string describe(const TaskOrder& order) {
  const bool is_in_order = order.lanes.size() == 1 && std::ranges::is_sorted(order.lanes[0].tasks);
  std::string text =
      is_in_order ? std::string("in order")
                  : fmt::format("out of order on {} lane{}", order.lanes.size(), order.lanes.size() == 1 ? "" : "s");
  if (!order.delayed.empty()) text += fmt::format(", {} tasks in the next step", order.delayed.size());
  if (!order.joins.empty()) text += fmt::format(", {} pairs of gradients joined", order.joins.size());
  return text;
}

std::vector<PlanChoice> lane_choices(const Graph& graph, const std::vector<TaskCost>& costs, const LaneOptions& options,
                                     std::string& reason) {
  const Plan in_order = place_memory(schedule_in_order(graph));
  std::vector<PlanChoice> choices = {{.name = "in order", .peak_bytes = {in_order.arena_bytes}}};
  choices[0].fits = !options.memory_cap || in_order.arena_bytes <= *options.memory_cap;
  if (costs.empty()) return choices;
  const Profile profile = profile_of(costs);
  choices[0].predicted_ns = predicted_ns(in_order, profile);
  const bool must = options.schedule == "ooo";
  if (options.schedule == "in-order") return choices;
  if (!must && options.most_lanes < 2) {
    reason = "schedule: in order; there is one core, so nothing can run beside anything";
    return choices;
  }
  if (!must && !can_gain(profile)) {
    reason = "schedule: in order; as far as is known, no task gains from another beside it";
    return choices;
  }
  const std::uint64_t cap = options.memory_cap.value_or(
      static_cast<std::uint64_t>(kMemoryByDefault * static_cast<double>(in_order.arena_bytes)));
  const double memory = std::max(1.0, static_cast<double>(cap) / static_cast<double>(in_order.arena_bytes));
  if (const Plan joined = join_gradients(schedule_in_order(graph), profile); !must && !joined.joins.empty())
    if (auto plan = within(joined, profile, cap))
      choices.push_back(choice_of("in order, joined", *plan, predicted_ns(*plan, profile)));
  const std::size_t side_lanes = std::clamp<std::size_t>(options.most_lanes, 2, 3) - 1;
  for (std::size_t side = 1; side <= side_lanes; ++side) {
    // Once as it comes, once with a search: the model may be wrong about what it gained.
    for (const bool searches : {false, true}) {
      // What must be out of order has one such choice at least.
      if (options.is_cancelled && options.is_cancelled() && !(must && choices.size() == 1)) continue;
      JointOptions joint{.side_lanes = side, .most_tries = options.search_tries, .is_cancelled = options.is_cancelled};
      if (!searches) joint.most_tries = 0;
      if (auto c = joint_choice(graph, profile, joint, cap, memory)) {
        if (!searches) c->name += ", no search";
        choices.push_back(std::move(*c));
      }
    }
  }
  const bool is_cut = options.is_cancelled && options.is_cancelled();
  if (choices.size() == 1 && is_cut) reason = "schedule: in order; there was no time to search for another";
  if (choices.size() == 1 && !is_cut) reason = "schedule: in order; out of order does not fit under the memory cap";
  return choices;
}

}  // namespace overtake
