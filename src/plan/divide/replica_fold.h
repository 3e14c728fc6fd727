#pragma once
// Which replicas of a divided step have to be simulated: those on the first few nodes, where all others do the same at
// the same time on alike nodes.

#include <cstdint>
#include <vector>

#include "overtake/machine.h"
#include "plan/divide/parallel_options.h"

namespace overtake {

struct ReplicaFold {
  std::uint32_t kept = 1;      // replicas, from the first on, that stand for all
  bool share_outside = false;  // DeviceCopies::share_outside
};

// The replicas that stand for all fill whole nodes, all others lie on further nodes just as they do, and nothing tells
// those nodes apart. All are kept where that is not so, where the machine does not fold (Machine::folds_replicas), or
// where the run is too small to gain by it. `devices` are the run's, replica by replica.
ReplicaFold fold_replicas(const ParallelOptions& options, const Machine& machine,
                          const std::vector<std::uint32_t>& devices);

}  // namespace overtake
