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

  void add_to(CLI::App& command);
  // Checks them, and cuts the session's batch into micro-batches.
  void apply(SessionFlags& session);
};

}  // namespace overtake
