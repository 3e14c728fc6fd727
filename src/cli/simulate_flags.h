#pragma once
// What `overtake simulate` is asked for.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/simulated_runs.h"
#include "cli/workload.h"

namespace overtake {

// One job: a model or a pipeline from nothing, and how it is spread.
struct JobFlags : WorkloadSpec {
  std::string synthetic, devices, bucket = "25M";
  SimulatedSpec run;
  bool weights_once = false;
  std::string first_k;  // empty: the best

  void add_to(CLI::App& command);
  // Fills in what of `run` needs no cluster, and what --synthetic says. User errors name the flag.
  void complete();
};

struct SimulateFlags : JobFlags {
  std::string cluster, memory_cap, algorithm = "auto", chunk = "4M", compare, sweep, trace, chakra, chakra_out;
  std::vector<std::string> slow, fail, beside;
  int steps = 0;
  bool no_slowdown = false, json = false;

  void add_to(CLI::App& command);
  ClusterOptions cluster_options(const Cluster& cluster, const Topology& topology) const;
};

// The text of --beside: a job as on the command line.
JobFlags job_from_text(const std::string& text);

// Stages of --synthetic; job.complete() has been called.
Workload synthetic_workload(const JobFlags& job);

}  // namespace overtake
