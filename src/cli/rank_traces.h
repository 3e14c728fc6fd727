#pragma once
// The traces of all processes of a job as one file.

#include <string>
#include <vector>

#include "comm/clock_offset.h"
#include "comm/group.h"
#include "overtake/plan.h"
#include "overtake/run_spec.h"
#include "report/step_time.h"

namespace overtake {

// "rank 2: stage 0 of replica 1"
std::string place_of(int rank, const RunSpec& spec);

// Against rank 0's. All ranks call it, right after what is traced, so that clocks of different hosts have had no time
// to drift apart. Throws CommError, as what follows, where a rank is lost.
ClockOffset clock_of_rank(Group& world);

// All ranks call it with what they did; rank 0 gets the text of the file, the others "".
std::string merged_trace(Group& world, const ClockOffset& clock, const RunSpec& spec, const std::string& run,
                         const Plan& plan, std::vector<Trace> traces, const StepTime& step_time);

}  // namespace overtake
