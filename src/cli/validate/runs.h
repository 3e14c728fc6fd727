#pragma once
// The simulations that published figures are compared with.

#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <string>

#include "cli/simulate/runs.h"
#include "overtake/run_spec.h"
#include "sim/collective_alone.h"

namespace overtake {

// A training step of a network on a cluster.
struct Setting {
  RunSpec spec;   // whose machine may also be the text of a machine file
  int steps = 4;  // one behind the other
  bool overlap_slows = true;
};

struct Measured {
  double step_ms = 0, samples_per_s = 0;
  double busy_ms = 0;     // of a device on average
  double peak_bytes = 0;  // of the device that needs most
};

// Milliseconds of a stage, and from one to the next.
struct StageTimes {
  double forward, input_grad, weight_grad, transfer;
};

// Every step once, however many figures it is part of. Any number of threads may use it at once.
class Laboratory {
 public:
  const Measured& run(const Setting& setting);
  // Over its work: the longest time of a device from its first task to its last, for pipelines of equal stages.
  double cost_of_pipeline(const StageTimes& times, std::uint32_t devices, std::uint32_t micro_batches,
                          const std::string& schedule, std::uint32_t chunks);

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_future<Measured>> known_;
};

// A collective over the first devices of a cluster, alone in it.
double all_reduce_ms(const std::string& cluster, std::uint32_t devices, std::int64_t bytes, Algorithm algorithm,
                     Protocol protocol = Protocol::automatic);
// The same as `overtake simulate --collective` says with all its defaults.
CollectiveTime timed(const std::string& machine, std::uint32_t devices, const CollectiveCase& what,
                     Algorithm algorithm);
// How much longer a task takes on each of the first devices of a cluster while a ring all-reduce runs there.
double slowdown_beside_ring(const std::string& cluster, std::uint32_t devices, const TaskCost& work);

}  // namespace overtake
