#pragma once
// The flags of training on several devices.

#include <CLI/CLI.hpp>
#include <string>

#include "cli/session_flags.h"
#include "train/parallel.h"

namespace overtake {

struct ParallelFlags {
  ParallelOptions options;
  std::string bucket = "25M";
  double time_out = 60, patience = 1800;  // seconds

  void add_to(CLI::App& command);
  // Checks them, and cuts the session's batch into micro-batches.
  void apply(SessionFlags& session);
  // Samples in a step, where `graph` takes a micro-batch.
  std::int64_t whole_batch(const Graph& graph) const;
  // Where this process is one of several that `overtake launch` or another launcher started: meets the others. All that
  // must be the same for all of them is in `identity`.
  void connect(SessionOptions& session, const std::string& identity) const;
};

}  // namespace overtake
