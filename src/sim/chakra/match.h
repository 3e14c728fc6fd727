#pragma once
// Which nodes of the ranks of a Chakra trace are one communication.

#include <cstdint>
#include <vector>

#include "sim/chakra/nodes.h"

namespace overtake::chakra {

struct Collective {
  std::int64_t number = 0;
  std::vector<TaskId> members;  // by rank
};

struct Matches {
  std::vector<Collective> collectives;
  // Per transfer (Nodes::transfers): of a send its recv, of a recv its send; of a member its collective, by index.
  std::vector<std::uint32_t> other;
};

// A send and a recv belong together by source, destination and tag, and by the order of those that have the same; what
// ranks do in a group, by its order on each. The order is that of start, then of ids. A user error for what has no
// counterpart, or one of another kind or size; all-to-alls may have several sizes.
Matches match(const Nodes& nodes);

// Gives all members of an all-to-all the bytes of the largest; how many had others.
std::size_t even_out(Nodes& nodes, const Matches& matches);

}  // namespace overtake::chakra
