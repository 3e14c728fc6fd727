#pragma once
// The traces of all processes of a job as one file.

#include <string>
#include <vector>

#include "comm/group.h"
#include "graph/plan.h"
#include "train/parallel.h"

namespace overtake {

// "rank 2: stage 0 of replica 1"
std::string place_of(int rank, const ParallelOptions& options);

// All ranks call it with what they did, after the last step; rank 0 gets the text of the file, the others "". Throws
// CommError where a rank is lost meanwhile.
std::string merged_trace(Group& world, const ParallelOptions& options, const std::string& run, const Plan& plan,
                         std::vector<Trace> traces);

}  // namespace overtake
