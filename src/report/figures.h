#pragma once
// What a timeline amounts to, in numbers.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/trace_file.h"

namespace overtake {

// Times are nanoseconds within RecordedRun::counted. At each moment a device computes, communicates, does both, or
// idles; so compute + exposed + idle is its length. A transfer between ranks counts from when the last of them has come
// to it: before that nothing moves, and who has nothing else to do idles.
struct DeviceFigures {
  std::string name;
  std::optional<std::uint32_t> rank;  // of a job of several processes
  std::int64_t clock_error_ns = 0;    // against rank 0
  std::int64_t compute_ns = 0;        // a task that does not communicate runs
  std::int64_t busy_ns = 0;           // at least one task runs
  std::int64_t idle_ns = 0;           // none does: bubbles
  std::int64_t overlap_ns = 0;        // tasks of two tracks or more run at once
  std::int64_t communication_ns = 0;  // a task that communicates runs
  std::int64_t exposed_ns = 0;        // and nothing computes meanwhile
  std::int64_t peak_bytes = 0;        // 0: the file does not say
};

// Tasks of one kind on all tracks; a task inside another of its kind on the same track adds nothing.
struct KindFigures {
  std::string name;
  std::int64_t tasks = 0;
  std::int64_t time_ns = 0;
};

struct RunFigures {
  std::string name, file, model, schedule;
  std::int64_t tasks = 0;
  std::int64_t steps = 0;  // that are shown; 0: the file does not say
  std::int64_t step_ns =
      0;                    // what its command measured, or else the median of those shown; without steps the whole run
  std::string step_time;    // which of these: "median of 10 measured steps"
  std::int64_t run_ns = 0;  // what is counted
  double idle_share = 0;    // of all devices' time: bubbles
  // The step of the first run with tasks over this one's; none where this one has none, or only one of them says where
  // steps begin.
  std::optional<double> speed_up;
  std::vector<DeviceFigures> devices;
  std::vector<KindFigures> kinds;  // most time first
};

std::vector<RunFigures> figures_of(const TraceFile& traces);
nlohmann::json to_json(const std::vector<RunFigures>& figures);

}  // namespace overtake
