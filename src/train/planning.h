#pragma once
// Chooses the plan of a training graph by measuring on the device at hand.

#include <optional>
#include <string>
#include <vector>

#include "exec/backend.h"
#include "machine/profile.h"
#include "train/profiling.h"

namespace overtake {

enum class ScheduleChoice : std::uint8_t { in_order, ooo, automatic };
ScheduleChoice schedule_from_string(const std::string& name);  // "in-order", "ooo", "auto"

struct PlanningOptions {
  ScheduleChoice schedule = ScheduleChoice::automatic;
  std::optional<std::uint64_t> memory_cap;  // none: out of order may take a tenth more than in order
  double seconds = 10;                      // for searching
  ProfilingOptions profiling = {};
};

// A plan that was thought of, what the model says of it, what a short run of it took (0: not measured), and in how many
// rounds of that it was faster than in order.
struct Candidate {
  std::string name;
  Plan plan;
  std::int64_t predicted_ns = 0, measured_ns = 0;
  int won_rounds = 0;
};
struct PlanChoice {
  std::vector<Candidate> candidates;  // in order first
  std::size_t chosen = 0;
  Profile profile;     // empty where only in order was asked for
  std::string reason;  // one line for people
};

// Plans with memory placed, within the cap. Out of order is taken back where it needs too much memory. `ooo` is the
// fastest of those that are out of order in a short measured run; `automatic` takes it only if it beats in order.
PlanChoice choose_plan(const Graph& graph, Backend& backend, const PlanningOptions& options);

// Random numbers of a sensible range into every input: floats are normal, ids are in the range their users accept.
void fill_random_inputs(Executor& executor, std::uint64_t seed);
// Weights and states as a model starts: a pure function of the seed and each buffer's name.
void fill_initial_parameters(Executor& executor, std::uint64_t seed);
// Both for an executor that is only to be timed, in a fraction of the time: the numbers of large weights repeat.
void fill_to_be_timed(Executor& executor);

}  // namespace overtake
