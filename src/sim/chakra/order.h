#pragma once
// Lanes and waits from the dependencies and times of a Chakra trace.

#include <vector>

#include "overtake/plan.h"
#include "sim/chakra/match.h"

namespace overtake::chakra {

struct Order {
  std::vector<Lane> lanes;
  std::vector<Wait> waits;  // sorted; what the files call dependencies, but for those that only repeat a lane's order
};

// A lane has the order of its places, times of start and ids. Where that would wait for ever, dependencies decide
// between equal times, and lanes without places and times take another order. A user error for a dependency on what is
// not there, and for a circle.
Order order(const Nodes& nodes, const Matches& matches);

}  // namespace overtake::chakra
