#pragma once
// Measured times of the tasks of a graph on the device at hand.

#include <cstdint>
#include <vector>

#include "graph/plan.h"

namespace overtake {

// Nanoseconds per task; both vectors have one entry per task of the graph.
struct Profile {
  std::vector<std::int64_t> alone_ns;   // while nothing else runs: all cores may help
  std::vector<std::int64_t> beside_ns;  // on one core, beside another lane
};

// Medians over traces of the same graph.
std::vector<std::int64_t> median_times(const std::vector<Trace>& traces, std::size_t tasks);

}  // namespace overtake
