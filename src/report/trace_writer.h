#pragma once
// What all files in Chrome's format have in common that Overtake writes.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "overtake/plan.h"
#include "report/step_time.h"

namespace overtake {

// Events one by one as text, so that a long trace never is a tree of JSON values.
class EventList {
 public:
  void add(const nlohmann::json& event);
  void add_metadata(const char* what, std::size_t process, std::size_t thread, nlohmann::json args);
  // Counters "live bytes" of a step, by device; see live_memory.
  void add_memory(const Plan& plan, const Trace& step, std::int64_t start_ns, std::size_t first_process);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The threads of a plan's lanes. A viewer shows tasks of one thread only if none ends within another, so a lane whose
// tasks overlap has several threads of one name.
class LaneThreads {
 public:
  LaneThreads(EventList& events, std::size_t lanes) : events_(events), row_ends_(lanes) {}
  // The first thread of the lane that is free then; a new one is named. `begin_ns` never goes back.
  std::size_t thread_of(std::size_t lane, std::int64_t begin_ns, std::int64_t end_ns, std::size_t process,
                        const std::string& lane_name);

 private:
  EventList& events_;
  std::vector<std::vector<std::int64_t>> row_ends_;  // per lane
};

// The begin of an arrow between tasks, and its end, which lies within the task that it leads to.
void add_flow_begin(EventList& events, const std::string& id, std::size_t process, std::size_t thread,
                    std::int64_t at_ns);
void add_flow_end(EventList& events, const std::string& id, std::size_t process, std::size_t thread,
                  const std::pair<std::int64_t, std::int64_t>& task_ns);

// A file of the texts of several lists; empty ones are left out.
std::string file_of_events(const std::vector<std::string>& texts);

// Chrome's format counts in microseconds.
inline double microseconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-3; }

// As "overtake_run" has it.
nlohmann::json json_of(const StepTime& time);

// A name of Chrome's palette.
const char* colour_of(Kind kind);

bool is_communication(Kind kind);

}  // namespace overtake
