#pragma once
// Chooses the plan of a training graph by measuring on the device at hand.

#include <functional>
#include <optional>
#include <string>

#include "cost/profile.h"
#include "exec/backend.h"

namespace overtake {

enum class ScheduleChoice : std::uint8_t { in_order, ooo, automatic };
ScheduleChoice schedule_from_string(const std::string& name);  // "in-order", "ooo", "auto"

struct PlanningOptions {
  ScheduleChoice schedule = ScheduleChoice::automatic;
  std::optional<std::uint64_t> memory_cap;
  std::function<void(const std::string&)> note = {};
};

// A plan with memory placed, within the cap. Out of order is taken back step by step where it needs too much memory.
// `automatic` takes out of order only if a short measured run confirms that it is faster.
Plan choose_plan(const Graph& graph, Backend& backend, const PlanningOptions& options);

// Medians of a few steps on random inputs: with the whole device, and with one lane's share of it.
Profile measure_profile(const Graph& graph, Backend& backend);

// Random numbers of a sensible range into every input: floats are normal, ids are in the range their users accept.
void fill_random_inputs(Executor& executor, std::uint64_t seed);
// Weights and states as a model starts: a pure function of the seed and each buffer's name.
void fill_initial_parameters(Executor& executor, std::uint64_t seed);

}  // namespace overtake
