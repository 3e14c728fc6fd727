#include "report/trace_writer.h"

#include <algorithm>

#include "graph/live_memory.h"

namespace overtake {

using nlohmann::json;

void EventList::add(const json& event) {
  text_ += text_.empty() ? "" : ",\n";
  text_ += event.dump(-1, ' ', false, json::error_handler_t::replace);
}

void EventList::add_metadata(const char* what, std::size_t process, std::size_t thread, json args) {
  add({{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", std::move(args)}});
}

void EventList::add_memory(const Plan& plan, const Trace& step, std::int64_t start_ns, std::size_t first_process) {
  const auto memory = live_memory(plan, step);
  for (std::size_t d = 0; d < memory.size(); ++d) {
    for (const MemorySample& sample : memory[d]) {
      json bytes;
      for (std::size_t i = 0; i < kMemoryGroups.size(); ++i) bytes[std::string(kMemoryGroups[i])] = sample.bytes[i];
      add({{"ph", "C"},
           {"pid", first_process + d},
           {"tid", 0},
           {"name", "live bytes"},
           {"ts", microseconds(start_ns + sample.at_ns)},
           {"args", std::move(bytes)}});
    }
  }
}

std::size_t LaneThreads::thread_of(std::size_t lane, std::int64_t begin_ns, std::int64_t end_ns, std::size_t process,
                                   const std::string& lane_name) {
  constexpr std::size_t kMostRows = 10'000;  // of a lane
  std::vector<std::int64_t>& ends = row_ends_[lane];
  const auto free = std::ranges::find_if(ends, [&](std::int64_t end) { return end <= begin_ns; });
  const auto row = static_cast<std::size_t>(free - ends.begin());
  const std::size_t thread = lane * kMostRows + row;
  if (free == ends.end()) {
    ends.push_back(end_ns);
    events_.add_metadata("thread_name", process, thread, {{"name", lane_name}});
  }
  ends[row] = end_ns;
  return thread;
}

namespace {

json flow_event(const char* phase, const std::string& id, std::size_t process, std::size_t thread, std::int64_t at_ns) {
  return {{"ph", phase},    {"id", id},      {"cat", "message"},         {"name", "message"},
          {"pid", process}, {"tid", thread}, {"ts", microseconds(at_ns)}};
}

}  // namespace

void add_flow_begin(EventList& events, const std::string& id, std::size_t process, std::size_t thread,
                    std::int64_t at_ns) {
  events.add(flow_event("s", id, process, thread, at_ns));
}

void add_flow_end(EventList& events, const std::string& id, std::size_t process, std::size_t thread,
                  const std::pair<std::int64_t, std::int64_t>& task_ns) {
  json flow = flow_event("f", id, process, thread, std::max(task_ns.first, task_ns.second - 1));
  flow["bp"] = "e";  // belongs to what it is inside of
  events.add(flow);
}

std::string file_of_events(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() || text.empty() ? "" : ",\n") + text;
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + all + "\n]}\n";
}

json json_of(const StepTime& time) { return {{"us", microseconds(time.ns)}, {"what", time.what}}; }

// Every viewer maps them to a stable colour.
const char* colour_of(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return "good";
    case Kind::input_grad:
      return "rail_response";
    case Kind::weight_grad:
      return "rail_animation";
    case Kind::update:
      return "rail_idle";
    case Kind::all_reduce:
      return "terrible";
    case Kind::reduce_scatter:
      return "bad";
    case Kind::all_gather:
      return "yellow";
    case Kind::all_to_all:
      return "olive";
    case Kind::send:
      return "thread_state_iowait";
    case Kind::recv:
      return "thread_state_runnable";
    case Kind::load:
      return "grey";
  }
  return "generic_work";
}

bool is_communication(Kind kind) { return kind >= Kind::all_reduce && kind <= Kind::recv; }

}  // namespace overtake
