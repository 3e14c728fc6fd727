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
      : events_(events),
        run_(run),
        plan_(*run.plan),
        number_(number),
        first_process_(first_process),
        threads_(events, plan_.lanes.size()) {
    for (const Lane& lane : plan_.lanes) devices_ = std::max(devices_, std::size_t{lane.device} + 1);
  }
  std::size_t devices() const { return devices_; }

  void write() {
    describe();
    const Dependencies deps = dependencies(plan_.graph);
    std::int64_t start_ns = 0;
    for (std::size_t s = 0; s < run_.steps.size(); ++s) {
      std::vector<Span> spans = run_.steps[s].spans;
      std::ranges::stable_sort(spans, {}, [](const Span& span) { return std::pair(span.lane, span.begin_ns); });
      for (const Span& span : spans) add_span(span, s, start_ns, deps.of(span.task));
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
      json description = {{"run", number_},
                          {"name", run_.name},
                          {"model", plan_.graph.model},
                          {"schedule", plan_.schedule},
                          {"device", device},
                          {"arena_bytes", plan_.arena_bytes},
                          {"step_us", step_us}};
      if (run_.step_time) description["step_time"] = json_of(*run_.step_time);
      events_.add_metadata("overtake_run", process, 0, std::move(description));
    }
  }

  std::size_t process_of(std::size_t lane) const { return first_process_ + plan_.lanes[lane].device; }

  void add_span(const Span& span, std::size_t step, std::int64_t start_ns, std::span<const TaskId> waits_for) {
    const Graph& g = plan_.graph;
    const Task& task = g.tasks[span.task];
    const std::size_t process = process_of(span.lane);
    const std::int64_t begin_ns = start_ns + span.begin_ns, end_ns = start_ns + span.end_ns;
    const std::size_t thread = threads_.thread_of(span.lane, begin_ns, end_ns, process, lane_name(plan_, span.lane));
    json waits = json::array();
    for (const TaskId t : waits_for) {
      if (!plan_.is_planned(t)) continue;
      waits.push_back(t);
      if (task.kind == Kind::recv && g.tasks[t].kind == Kind::send)
        add_flow_end(events_, flow_id(t, step), process, thread, {begin_ns, end_ns});
    }
    if (task.kind == Kind::send) add_flow_begin(events_, flow_id(span.task, step), process, thread, begin_ns);
    events_.add({{"ph", "X"},
                 {"pid", process},
                 {"tid", thread},
                 {"name", g.task_name(span.task)},
                 {"cat", to_string(task.kind)},
                 {"cname", colour_of(task.kind)},
                 {"ts", microseconds(begin_ns)},
                 {"dur", microseconds(end_ns - begin_ns)},
                 {"args",
                  {{"task", span.task},
                   {"step", step},
                   {"layer", g.layer_name(task.layer)},
                   {"kind", to_string(task.kind)},
                   {"op", to_string(task.op)},
                   {"waits_for", std::move(waits)}}}});
  }

  std::string flow_id(TaskId send, std::size_t step) const {
    return "send " + std::to_string(send) + " of step " + std::to_string(step) + " of run " + std::to_string(number_);
  }

  EventList& events_;
  const TracedRun& run_;
  const Plan& plan_;
  std::size_t number_, first_process_, devices_ = 1;
  LaneThreads threads_;
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
