#pragma once
// One call of `overtake simulate`.

#include <vector>

#include "cli/simulate/flags.h"
#include "cli/simulate/runs.h"

namespace overtake {

inline constexpr const char* kUsualMachine = "h200";

// A job on a cluster, in one way or several, or beside others. Prints what came of it and returns the exit status.
int run_simulation(const SimulateFlags& flags, const RunSpec& spec);

// A plan file, on the machine that it was made for.
int simulate_plan(const SimulateFlags& flags, const std::string& file);

// What another program traced, on the cluster.
int replay_chakra(const SimulateFlags& flags, const RunSpec& spec);

// Tells of a job that does not end, and ends with a user error.
[[noreturn]] void tell_stuck(const std::string& name, const ClusterJob& job, const JobResult& result,
                             const Topology& topology, bool as_json);

// Jobs that share a cluster, each with what it takes alone.
struct SharedRun {
  std::vector<JobResult> results;
  std::vector<int> steps;       // that each ran
  std::vector<double> step_ms;  // while all run; nothing of jobs that do not end
};
// Repeats the steps of shorter jobs until the longest has finished, so that all overlap throughout.
SharedRun run_together(const std::vector<SimulatedRun>& alone, const std::vector<int>& steps, const Machine& machine);

}  // namespace overtake
