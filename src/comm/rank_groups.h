#pragma once
// The groups that one rank of a job is in: all ranks, and those that share a collective.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/error.h"
#include "comm/group.h"

namespace overtake {

struct RankGroups {
  std::unique_ptr<Group> world;
  std::map<std::vector<std::int64_t>, std::unique_ptr<Group>> some;  // by their ranks, ascending; fewer than all

  // Transfers under way fail, here and, with this rank's number, on the others.
  void close() {
    some.clear();
    world.reset();
  }

  Group& of(const std::vector<std::int64_t>& ranks) const {
    if (static_cast<int>(ranks.size()) == world->size()) return *world;
    const auto found = some.find(ranks);
    OVERTAKE_CHECK(found != some.end(), "no group of {} ranks that begins with {}", ranks.size(), ranks.front());
    return *found->second;
  }
};

}  // namespace overtake
