#include "report/perfetto.h"

#include <nlohmann/json.hpp>

namespace overtake {
namespace {

using nlohmann::json;

// Names of Chrome's palette; every viewer maps them to a stable colour.
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
    default:
      return "generic_work";
  }
}

json name_event(const char* what, std::size_t process, std::size_t thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string perfetto_json(const std::vector<TracedRun>& runs) {
  json events = json::array();
  for (std::size_t p = 0; p < runs.size(); ++p) {
    const TracedRun& run = runs[p];
    events.push_back(name_event("process_name", p, 0, run.name));
    for (std::size_t l = 0; l < run.plan->lanes.size(); ++l)
      events.push_back(name_event("thread_name", p, l, l == 0 ? "main lane" : "side lane " + std::to_string(l)));
    double start_us = 0;
    for (const Trace& trace : run.steps) {
      for (const Span& span : trace.spans) {
        const Task& task = run.plan->graph.tasks[span.task];
        events.push_back({{"ph", "X"},
                          {"pid", p},
                          {"tid", span.lane},
                          {"name", run.plan->graph.task_name(span.task)},
                          {"cat", to_string(task.kind)},
                          {"cname", colour_of(task.kind)},
                          {"ts", start_us + static_cast<double>(span.begin_ns) * 1e-3},
                          {"dur", static_cast<double>(span.end_ns - span.begin_ns) * 1e-3},
                          {"args", {{"op", to_string(task.op)}, {"kind", to_string(task.kind)}, {"task", span.task}}}});
      }
      start_us += static_cast<double>(trace.step_ns) * 1e-3;
    }
  }
  return json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace overtake
