#pragma once
// How the processes of a job share the cores of their hosts.

#include <vector>

#include "comm/group.h"

namespace overtake {

// How much of its `threads` cores each rank has for itself, 1 where nobody else is there. All ranks call it at once.
std::vector<double> core_shares(Group& world, unsigned threads);

}  // namespace overtake
