#pragma once
// Ranks that are threads of one process.

#include <functional>
#include <vector>

#include "comm/group.h"

namespace overtake {

struct LocalOptions {
  GroupOptions group;
  // Called on the sender's thread before each message is handed over; tests slow links down with it.
  std::function<void(int from, int to, std::size_t bytes)> on_message;
};

// One group object per rank, in order; each may be used and destroyed by a thread of its own.
std::vector<std::unique_ptr<Group>> make_local_groups(int size, const LocalOptions& options = {});

}  // namespace overtake
