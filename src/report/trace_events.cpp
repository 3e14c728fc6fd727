#include "report/trace_events.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace overtake {
namespace {

using nlohmann::json;

// Times since 1970 fit, and sums of nanoseconds stay within 64 bits.
constexpr double kMaxMicroseconds = 2e15;
// Eleven days, so that times within a trace are exact as floating-point numbers too.
constexpr std::int64_t kMaxLength_ns = 1'000'000'000'000'000;

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string text_at(const json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? "" : text_of(*it);
}

// Takes the events one by one as the parser finishes them, so that memory holds no tree of the file.
class EventReader {
 public:
  explicit EventReader(const std::string& path) : path_(path) {}

  TraceEvents read() {
    const std::string text = read_file(path_);
    if (text.starts_with("\x1f\x8b")) fail_user("{}: a compressed file; unpack it with gunzip first", path_);
    try {
      const json top = parse_json(
          text, [this](int depth, json::parse_event_t what, json& value) { return take(depth, what, value); });
    } catch (const json::parse_error& e) {
      fail_user(
          "{}: not JSON, cut short, or nested too deeply, at byte {}; give what `trace` or a profiler's Chrome export "
          "wrote",
          path_, e.byte);
    }
    close_open_spans();
    name_processes();
    const bool has_span = std::ranges::any_of(out_.list, [](const TraceEvent& e) { return !e.is_counter; });
    if (!has_span && out_.described.empty())
      fail_user("{}: a timeline without tasks: {} events, none of them a span (ph X or B); trace at least one step",
                path_, seen_);
    check_length();
    return std::move(out_);
  }

 private:
  // Events are the objects of the top array, or of "traceEvents" in the top object. False: do not keep.
  bool take(int depth, json::parse_event_t what, json& value) {
    if (what == json::parse_event_t::array_start && depth == 0) event_depth_ = 1;
    if (what == json::parse_event_t::key && depth == 1) is_in_events_ = value == "traceEvents";
    if (what != json::parse_event_t::object_end || depth != event_depth_) return true;
    if (event_depth_ == 1 || is_in_events_) take_event(value);
    return false;
  }

  void take_event(const json& event) {
    ++seen_;
    try {
      const std::string phase = text_at(event, "ph");
      if (phase == "X")
        add_span(event);
      else if (phase == "B")
        open_[thread_key(event)].push_back(begun(event));
      else if (phase == "E")
        end_span(event);
      else if (phase == "C")
        add_counter(event);
      else if (phase == "M")
        add_metadata(event);
    } catch (const json::exception& e) {
      fail_user("{}: {}: a value of the wrong type: {}; write the trace again", path_, where(event), e.what());
    }
  }

  std::string where(const json& event) const {
    return fmt::format("event {} ('{}')", seen_ - 1, text_at(event, "name"));
  }

  // Microseconds in the file.
  std::int64_t ns_at(const json& event, const char* key) const {
    const auto it = event.find(key);
    if (it == event.end() || !it->is_number())
      fail_user("{}: {}: '{}' is not a number of microseconds; write the trace again", path_, where(event), key);
    return ns_of(event, key, it->get<double>());
  }

  std::int64_t ns_of(const json& event, const char* key, double us) const {
    if (!(std::abs(us) < kMaxMicroseconds))
      fail_user("{}: {}: {} of {} us is beyond all bounds; write the trace again", path_, where(event), key, us);
    // In two parts: microseconds since 1970 have no bits left for a factor of 1000.
    const double whole = std::floor(us);
    return std::llround(whole) * 1000 + std::llround((us - whole) * 1e3);
  }

  static std::pair<std::string, std::string> thread_key(const json& event) {
    return {text_at(event, "pid"), text_at(event, "tid")};
  }

  TraceEvent begun(const json& event) const {
    TraceEvent out;
    std::tie(out.process, out.thread) = thread_key(event);
    out.name = text_at(event, "name");
    out.category = text_at(event, "cat");
    out.begin_ns = ns_at(event, "ts");
    const auto args = event.find("args");
    if (args == event.end() || !args->is_object() || !args->contains("waits_for")) return out;
    out.kind = text_at(*args, "kind");
    out.op = text_at(*args, "op");
    out.layer = text_at(*args, "layer");
    out.task = checked<std::uint32_t>(args->at("task"));
    out.waits_for = checked<std::vector<std::uint32_t>>(args->at("waits_for"));
    if (!args->contains("waits_for_last")) {
      out.step = checked<std::uint32_t>(args->at("step"));
      return out;
    }
    // Of a rank of several: what began before the first step has no number.
    if (args->contains("step")) out.step = checked<std::uint32_t>(args->at("step"));
    out.waits_for_last = checked<std::vector<std::uint32_t>>(args->at("waits_for_last"));
    if (args->contains("message")) out.transfer = "message " + text_at(*args, "message");
    // A sum in parts and the gathering of those parts have one number.
    if (args->contains("collective")) out.transfer = out.kind + " " + text_at(*args, "collective");
    return out;
  }

  void add_span(const json& event) {
    TraceEvent span = begun(event);
    span.duration_ns = event.contains("dur") ? ns_at(event, "dur") : 0;
    check_duration(event, span);
    last_ns_ = std::max(last_ns_, span.begin_ns + span.duration_ns);
    out_.list.push_back(std::move(span));
  }

  void check_duration(const json& event, const TraceEvent& span) const {
    if (span.duration_ns < 0)
      fail_user("{}: {}: a negative duration: {} us; write the trace again", path_, where(event),
                static_cast<double>(span.duration_ns) * 1e-3);
  }

  // An end without a begin belongs to what started before the trace did.
  void end_span(const json& event) {
    auto& open = open_[thread_key(event)];
    if (open.empty()) return;
    TraceEvent span = std::move(open.back());
    open.pop_back();
    span.duration_ns = ns_at(event, "ts") - span.begin_ns;
    check_duration(event, span);
    last_ns_ = std::max(last_ns_, span.begin_ns + span.duration_ns);
    out_.list.push_back(std::move(span));
  }

  // What had not ended lasts as long as the trace.
  void close_open_spans() {
    for (auto& [thread, spans] : open_) {
      for (TraceEvent& span : spans) {
        span.duration_ns = std::max<std::int64_t>(0, last_ns_ - span.begin_ns);
        out_.list.push_back(std::move(span));
      }
    }
  }

  void check_length() const {
    if (out_.list.empty()) return;
    std::int64_t first = out_.list.front().begin_ns, last = first;
    for (const TraceEvent& e : out_.list) {
      first = std::min(first, e.begin_ns);
      last = std::max(last, e.begin_ns + e.duration_ns);
    }
    if (last - first > kMaxLength_ns)
      fail_user("{}: a timeline of {:.0f} days; cut it to the steps of interest", path_,
                static_cast<double>(last - first) / 86400e9);
  }

  void add_counter(const json& event) {
    if (text_at(event, "name") != "live bytes") return;
    TraceEvent counter;
    std::tie(counter.process, counter.thread) = thread_key(event);
    counter.begin_ns = ns_at(event, "ts");
    counter.is_counter = true;
    for (const auto& [group, bytes] : event.at("args").items()) {
      if (!bytes.is_number_integer())
        fail_user("{}: {}: '{}' is not a number of bytes; write the trace again", path_, where(event), group);
      counter.counters.emplace_back(group, checked<std::int64_t>(bytes));
    }
    out_.list.push_back(std::move(counter));
  }

  void add_metadata(const json& event) {
    const std::string what = text_at(event, "name");
    const auto args = event.find("args");
    if (args == event.end()) return;
    const auto key = thread_key(event);
    if (what == "process_name") out_.process_names[key.first] = text_at(*args, "name");
    if (what == "process_labels") labels_[key.first] = text_at(*args, "labels");
    if (what == "thread_name") out_.thread_names[key] = text_at(*args, "name");
    if (what != "overtake_run") return;
    RunDescription run;
    run.run = checked<std::size_t>(args->at("run"));
    run.name = text_at(*args, "name");
    run.model = text_at(*args, "model");
    run.schedule = text_at(*args, "schedule");
    run.device = text_at(*args, "device");
    run.arena_bytes = checked<std::int64_t>(args->at("arena_bytes"));
    for (const json& us : args->at("step_us")) run.step_ns.push_back(ns_of(event, "step_us", us.get<double>()));
    if (const auto time = args->find("step_time"); time != args->end()) {
      run.step_time_ns = ns_of(event, "step_time", time->at("us").get<double>());
      run.step_time_what = text_at(*time, "what");
    }
    if (args->contains("rank")) {
      run.rank = checked<std::uint32_t>(args->at("rank"));
      run.clock_error_ns = ns_of(event, "clock_error_us", args->at("clock_error_us").get<double>());
      for (const json& us : args->at("step_start_us"))
        run.step_start_ns.push_back(ns_of(event, "step_start_us", us.get<double>()));
      if (run.step_start_ns.size() != run.step_ns.size())
        fail_user("{}: {}: {} starts of {} steps; write the trace again", path_, where(event), run.step_start_ns.size(),
                  run.step_ns.size());
    }
    out_.described[key.first] = std::move(run);
  }

  void name_processes() {
    for (const auto& [process, label] : labels_) {
      std::string& name = out_.process_names[process];
      name = name.empty() ? label : name + " (" + label + ")";
    }
  }

  const std::string& path_;
  TraceEvents out_;
  std::map<std::pair<std::string, std::string>, std::vector<TraceEvent>> open_;  // B without E so far, by thread
  std::map<std::string, std::string> labels_;
  int event_depth_ = 2;
  bool is_in_events_ = false;
  std::size_t seen_ = 0;
  std::int64_t last_ns_ = 0;
};

}  // namespace

std::string TraceEvents::process_name(const std::string& process) const {
  const auto it = process_names.find(process);
  return it == process_names.end() || it->second.empty() ? "process " + process : it->second;
}

std::string TraceEvents::thread_name(const std::string& process, const std::string& thread) const {
  const auto it = thread_names.find({process, thread});
  if (it != thread_names.end() && !it->second.empty()) return it->second;
  const bool is_number = std::ranges::all_of(thread, [](unsigned char c) { return std::isdigit(c) != 0; });
  return is_number ? "thread " + thread : thread;
}

TraceEvents read_trace_events(const std::string& path) { return EventReader(path).read(); }

}  // namespace overtake
