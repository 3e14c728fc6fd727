#pragma once

#include "overtake/run_spec.h"
#include "train/workplace.h"

namespace overtake {

// Where this process is one of several of a job, as its environment says: connects it with the others. The spec then
// has the GPU of this process, and the number of parts that all share. Of all ranks but the first, notes go nowhere.
void connect_ranks(RunSpec& spec, WorkplaceOptions& place);

}  // namespace overtake
