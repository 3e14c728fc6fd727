#pragma once
// What `overtake simulate` is asked for.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/spec_flags.h"

namespace overtake {

// One job: a model, or a pipeline from nothing, and how it is divided.
struct JobFlags {
  SpecFlags spec;
  std::string synthetic, measure_on;

  void add_to(CLI::App& command);
  // The run, with what --synthetic says of it. User errors name the flag.
  RunSpec run() const;
};

struct SimulateFlags : JobFlags {
  std::string calibrate, save_profile, compare, sweep, trace, chakra, chakra_out;
  std::string collective, bytes;
  std::uint32_t devices_per_process = 0;  // of `collective`; see CollectiveCase
  std::vector<std::string> slow, fail, beside;
  std::string network;  // empty: as the machine has it
  int steps = 0;        // in a row; 0: as many as a prediction asks for
  bool no_slowdown = false, no_fold = false;

  void add_to(CLI::App& command);
  // The machine's devices as --calibrate corrects them. User errors: a file that is none.
  Cluster corrected(Cluster cluster) const;
  // What is out of the ordinary on the machine.
  void add_scenario(Machine& machine) const;
};

// The text of --beside: a job as on the command line.
JobFlags job_from_text(const std::string& text);

}  // namespace overtake
