#pragma once
// What all files in Chrome's format have in common that Overtake writes.

#include <nlohmann/json.hpp>
#include <string>

#include "overtake/plan.h"

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

// A file of the texts of several lists; empty ones are left out.
std::string file_of_events(const std::vector<std::string>& texts);

// Chrome's format counts in microseconds.
inline double microseconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-3; }

// A name of Chrome's palette.
const char* colour_of(Kind kind);

bool is_communication(Kind kind);

}  // namespace overtake
