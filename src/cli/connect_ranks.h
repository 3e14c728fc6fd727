#pragma once
// A process that is one of several which train together.

#include "overtake/run_spec.h"
#include "train/session.h"

namespace overtake {

// Where this process is one of several that `overtake launch` or another launcher started: meets the others, which must
// have the same version and run, and takes rank 0's `parts`.
void connect_ranks(SessionOptions& session, const RunSpec& spec);

}  // namespace overtake
