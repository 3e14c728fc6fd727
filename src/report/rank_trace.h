#pragma once
// Traces of the processes of one job as one file, on one clock. Each rank writes its own events, rank 0 puts them
// together.

#include <cstdint>
#include <string>
#include <vector>

#include "overtake/plan.h"
#include "report/step_time.h"

namespace overtake {

// What one rank did.
struct RankTrace {
  int rank = 0;
  std::string run;    // its name, the same on all ranks
  std::string place;  // "rank 2: stage 0 of replica 1"
  const Plan* plan = nullptr;
  // One after the other, with their starts. Those with a step_ns of 0 are no steps, but what the step before delayed.
  // What began before its trace did belongs to the step before.
  std::vector<Trace> traces;
  std::int64_t offset_ns = 0;  // added to this rank's times gives rank 0's, within the error on either side
  std::int64_t error_ns = 0;
  StepTime step_time = {};
};

// When the first of all this began, in rank 0's time; the largest number if there is nothing.
std::int64_t first_begin_ns(const RankTrace& trace);

// The rank as a process: threads for its lanes, and more of the same name where tasks of an asynchronous lane overlap;
// counters of live bytes; flows from sends to recvs. Beyond what perfetto_json() writes, tasks have waits_for_last
// (tasks of the step before), and transfers say which one they are: message and peer, or collective and members. A task
// that a step delayed has the number of that step; what began before the first step has none. "overtake_run" has
// rank, step_start_us, clock_offset_us and clock_error_us as well. Time 0 is at origin_ns of rank 0's time.
std::string rank_events(const RankTrace& trace, std::int64_t origin_ns);

}  // namespace overtake
