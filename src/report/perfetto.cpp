#include "report/perfetto.h"

#include <algorithm>

#include "report/trace_writer.h"

namespace overtake {
namespace {

using nlohmann::json;

// A step lasts until its last task has ended, so that steps one after the other do not overlap.
std::int64_t length_of(const Trace& step) {
  std::int64_t end_ns = step.step_ns;
  for (const Span& span : step.spans) end_ns = std::max(end_ns, span.end_ns);
  return end_ns;
}

// "main lane", "side lane 1", "communication lane 2": by its place on its device and by what it does.
std::string lane_name(const Plan& plan, std::size_t lane) {
  const Lane& self = plan.lanes[lane];
  const auto place = std::count_if(plan.lanes.begin(), plan.lanes.begin() + static_cast<std::ptrdiff_t>(lane),
                                   [&](const Lane& other) { return other.device == self.device; });
  const bool communicates = !self.tasks.empty() && std::ranges::all_of(self.tasks, [&](TaskId t) {
    return is_communication(plan.graph.tasks[t].kind);
  });
  if (place == 0 && !communicates) return "main lane";
  return (communicates ? "communication lane " : "side lane ") + std::to_string(place);
}

class RunWriter {
 public:
  RunWriter(EventList& events, const TracedRun& run, std::size_t number, std::size_t first_process)
      : events_(events), run_(run), plan_(*run.plan), number_(number), first_process_(first_process) {
    for (const Lane& lane : plan_.lanes) devices_ = std::max(devices_, std::size_t{lane.device} + 1);
  }
  std::size_t devices() const { return devices_; }

  void write() {
    describe();
    const Dependencies deps = dependencies(plan_.graph);
    std::int64_t start_ns = 0;
    for (std::size_t s = 0; s < run_.steps.size(); ++s) {
      for (const Span& span : run_.steps[s].spans) add_span(span, s, start_ns, deps.of(span.task));
      events_.add_memory(plan_, run_.steps[s], start_ns, first_process_);
      start_ns += length_of(run_.steps[s]);
    }
  }

 private:
  void describe() {
    json step_us = json::array();
    for (const Trace& step : run_.steps) step_us.push_back(microseconds(length_of(step)));
    for (std::size_t d = 0; d < devices_; ++d) {
      const std::string device = devices_ == 1 ? run_.device : run_.device + " " + std::to_string(d);
      const std::size_t process = first_process_ + d;
      events_.add_metadata("process_name", process, 0,
                           {{"name", devices_ == 1 ? run_.name : run_.name + ", " + device}});
      events_.add_metadata("process_labels", process, 0, {{"labels", plan_.schedule + " on " + device}});
      events_.add_metadata("overtake_run", process, 0,
                           {{"run", number_},
                            {"name", run_.name},
                            {"model", plan_.graph.model},
                            {"schedule", plan_.schedule},
                            {"device", device},
                            {"arena_bytes", plan_.arena_bytes},
                            {"step_us", step_us}});
    }
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l)
      events_.add_metadata("thread_name", process_of(l), l, {{"name", lane_name(plan_, l)}});
  }

  std::size_t process_of(std::size_t lane) const { return first_process_ + plan_.lanes[lane].device; }

  void add_span(const Span& span, std::size_t step, std::int64_t start_ns, std::span<const TaskId> waits_for) {
    const Graph& g = plan_.graph;
    const Task& task = g.tasks[span.task];
    json waits = json::array();
    for (const TaskId t : waits_for)
      if (plan_.is_planned(t)) waits.push_back(t);
    events_.add({{"ph", "X"},
                 {"pid", process_of(span.lane)},
                 {"tid", span.lane},
                 {"name", g.task_name(span.task)},
                 {"cat", to_string(task.kind)},
                 {"cname", colour_of(task.kind)},
                 {"ts", microseconds(start_ns + span.begin_ns)},
                 {"dur", microseconds(span.end_ns - span.begin_ns)},
                 {"args",
                  {{"task", span.task},
                   {"step", step},
                   {"layer", g.layer_name(task.layer)},
                   {"kind", to_string(task.kind)},
                   {"op", to_string(task.op)},
                   {"waits_for", std::move(waits)}}}});
  }

  EventList& events_;
  const TracedRun& run_;
  const Plan& plan_;
  std::size_t number_, first_process_, devices_ = 1;
};

}  // namespace

std::string perfetto_json(const std::vector<TracedRun>& runs) {
  EventList events;
  std::size_t processes = 0;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    RunWriter writer(events, runs[r], r, processes);
    writer.write();
    processes += writer.devices();
  }
  return file_of_events({events.text()});
}

}  // namespace overtake
