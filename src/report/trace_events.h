#pragma once
// The events of a file in Chrome's trace format, as plain values.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace overtake {

// A span (X, or B and E) or a counter of memory (C). Processes and threads are texts: some write numbers, some names.
struct TraceEvent {
  std::string process, thread, name, category;
  std::int64_t begin_ns = 0, duration_ns = 0;
  bool is_counter = false;
  std::vector<std::pair<std::string, std::int64_t>> counters;  // of a counter
  // What Overtake adds.
  std::string kind, op, layer;
  std::optional<std::uint32_t> task, step;
  std::vector<std::uint32_t> waits_for;       // tasks of the same step
  std::vector<std::uint32_t> waits_for_last;  // of the step before
  // The transfer between ranks that this is one end of: the same text on all of them.
  std::string transfer;
};

// What Overtake says of a process.
struct RunDescription {
  std::size_t run = 0;
  std::string name, model, schedule, device;
  std::int64_t arena_bytes = 0;
  std::vector<std::int64_t> step_ns;
  std::int64_t step_time_ns = 0;  // what its command says a step takes; 0: nothing
  std::string step_time_what;
  // Of a rank of a job. Its times agree with those of rank 0 within the error.
  std::optional<std::uint32_t> rank;
  std::vector<std::int64_t> step_start_ns;
  std::int64_t clock_error_ns = 0;
};

struct TraceEvents {
  std::vector<TraceEvent> list;                      // at least one span, or runs are described
  std::map<std::string, RunDescription> described;   // by process; empty for files of others
  std::map<std::string, std::string> process_names;  // "python (GPU 0)"
  std::map<std::pair<std::string, std::string>, std::string> thread_names;

  std::string process_name(const std::string& process) const;
  std::string thread_name(const std::string& process, const std::string& thread) const;
};

// User errors name the file and the event.
TraceEvents read_trace_events(const std::string& path);

}  // namespace overtake
