#pragma once
// What connects one rank of a job to the others. One group for all: when a rank is lost, all others hear of the same
// error, whatever they have to do with it.

#include <memory>

#include "comm/group.h"

namespace overtake {

struct RankGroups {
  std::unique_ptr<Group> world;

  // Transfers under way fail, here and, with this rank's number, on the others.
  void close() { world.reset(); }
};

}  // namespace overtake
