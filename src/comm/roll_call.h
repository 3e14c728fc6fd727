#pragma once
// Before ranks talk to each other, each puts a card into a store and reads those of all others.

#include <chrono>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/store.h"

namespace overtake {

struct RollCall {
  int rank, size;
  std::string identity;  // what all ranks must have in common, a line each: program, model, settings
  std::string message;   // what this rank tells the others, any bytes
  std::chrono::milliseconds time_out;
};

// The messages of all ranks, by rank. Throws UserError on all ranks that are there where two have one number, the
// world's size is not the same for all, or their identities differ; CommError when a rank does not come in time.
std::vector<std::string> call_roll(Store& store, const RollCall& mine);

// While ranks connect they cannot yet tell each other what went wrong: of their errors, the first to be put into the
// store is everyone's. To be called before a rank that failed closes its links, because that looks like a fault of its
// own.
CommError first_of_all(Store& store, const CommError& error);

}  // namespace overtake
