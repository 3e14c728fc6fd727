#pragma once
// The processes of a job on this host, started and ended together.

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launch/worker.h"

namespace overtake {

struct Job {
  std::vector<std::string> command;  // what every worker runs; told who it is by the variables of worker.h
  int workers = 1;
  Worker first;              // the first of them; the others count on from its ranks
  bool share_cores = false;  // all may use all cores, instead of each its own
  // How long workers that were asked to leave may take: to save after Ctrl-C, to notice that another failed.
  std::chrono::milliseconds leave_time{60'000}, fail_time{3'000};
  std::function<void(const std::string& line)> say;  // what the user should read
};

// Returns when no worker is left: 0 when all ended well, else what the one at fault exited with (128 + signal).
//
// The first worker that fails ends the job. The others are asked to leave (SIGTERM), then killed. As some may only have
// failed because they lost another, all that fail within a moment are looked at: one killed by a signal is at fault,
// else the first that did not merely lose a rank. SIGINT, SIGTERM and SIGHUP go to all workers, which may save and
// leave; a SIGINT after that kills them. Rank 0 is heard; of the others the end of their errors is shown if the job
// fails. Must be called from the process's only thread.
int supervise(const Job& job);

}  // namespace overtake
