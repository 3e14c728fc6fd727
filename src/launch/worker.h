#pragma once
// Which process of a job this one is. Whoever starts the processes says so by environment variables.

#include <functional>
#include <optional>
#include <string>

namespace overtake {

struct Worker {
  int rank = 0, size = 1;  // of all processes of the job
  int local_rank = 0;      // of those on this host: which of its devices to take
  std::string job;         // its own for every run; empty where it is not known, and there is one process
  std::string store;       // where ranks meet, for open_store(); may be empty where there is one process
  std::string address;     // where others reach this host; empty: on the loopback, because all are here
};

// What a worker exits with when it is well, but a rank it needs is not. The supervisor looks for the cause elsewhere.
inline constexpr int kLostARank = 75;

// The value of an environment variable. One that is empty counts as not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Nothing where no launcher of those that are known started this process. `overtake launch` and people set
// OVERTAKE_RANK, OVERTAKE_SIZE, OVERTAKE_LOCAL_RANK, OVERTAKE_JOB, OVERTAKE_STORE and OVERTAKE_ADDRESS; the last three
// also add to what torchrun, mpirun and srun say, or go before it. UserError names the variable that is missing or
// makes no sense.
std::optional<Worker> worker_from(const Environment& environment);
std::optional<Worker> worker_from_environment();

}  // namespace overtake
