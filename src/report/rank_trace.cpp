#include "report/rank_trace.h"

#include <algorithm>
#include <limits>

#include "report/trace_writer.h"

namespace overtake {
namespace {

using nlohmann::json;

bool is_message(Kind kind) { return kind == Kind::send || kind == Kind::recv; }

// By what it does, and with whom.
std::string rank_lane_name(const Plan& plan, std::size_t lane) {
  const Graph& g = plan.graph;
  const std::vector<TaskId>& tasks = plan.lanes[lane].tasks;
  const auto all = [&](const auto& holds) {
    return !tasks.empty() && std::ranges::all_of(tasks, [&](TaskId t) { return holds(g.tasks[t].kind); });
  };
  if (all([](Kind k) { return k == Kind::send; })) return "sends";
  if (all([](Kind k) { return k == Kind::recv; }))
    return "receives from " + std::to_string(g.attrs_of(g.tasks[tasks[0]]).integer("peer"));
  const bool communicates = all([](Kind k) { return is_communication(k); });
  if (communicates && all([](Kind k) { return !is_message(k); })) return "collectives";
  return (communicates ? "transfers" : "compute") + (lane == 0 ? "" : " " + std::to_string(lane));
}

class RankWriter {
 public:
  RankWriter(const RankTrace& trace, std::int64_t origin_ns)
      : trace_(trace),
        plan_(*trace.plan),
        graph_(plan_.graph),
        process_(static_cast<std::size_t>(trace.rank)),
        shift_ns_(trace.offset_ns - origin_ns),
        here_(dependencies(graph_)),
        before_(dependencies_across_steps(graph_)),
        threads_(events_, plan_.lanes.size()) {}

  std::string write() {
    describe();
    std::int64_t steps = 0;
    for (const Trace& trace : trace_.traces) {
      const std::int64_t start_ns = trace.start_ns + shift_ns_;
      Trace own = trace;  // lanes in their order, and rows in the order in which they are filled
      std::ranges::stable_sort(own.spans, {}, [](const Span& s) { return std::pair(s.lane, s.begin_ns); });
      for (const Span& span : own.spans)
        add_span(span, span.begin_ns < 0 || graph_.tasks[span.task].is_delayed ? steps - 1 : steps, start_ns);
      std::erase_if(own.spans, [](const Span& s) { return s.begin_ns < 0; });
      if (trace.step_ns == 0) continue;
      events_.add_memory(plan_, own, start_ns, process_);
      ++steps;
    }
    return events_.text();
  }

 private:
  void describe() {
    json step_us = json::array(), start_us = json::array();
    for (const Trace& t : trace_.traces) {
      if (t.step_ns == 0) continue;
      step_us.push_back(microseconds(t.step_ns));
      start_us.push_back(microseconds(t.start_ns + shift_ns_));
    }
    events_.add_metadata("process_name", process_, 0, {{"name", trace_.place}});
    events_.add_metadata("process_sort_index", process_, 0, {{"sort_index", trace_.rank}});
    events_.add_metadata("overtake_run", process_, 0,
                         {{"run", 0},
                          {"name", trace_.run},
                          {"model", graph_.model},
                          {"schedule", plan_.schedule},
                          {"device", trace_.place},
                          {"arena_bytes", plan_.arena_bytes},
                          {"step_us", step_us},
                          {"step_start_us", start_us},
                          {"rank", trace_.rank},
                          {"clock_offset_us", microseconds(trace_.offset_ns)},
                          {"clock_error_us", microseconds(trace_.error_ns)},
                          {"step_time", json_of(trace_.step_time)}});
  }

  void add_span(const Span& span, std::int64_t step, std::int64_t start_ns) {
    const Task& task = graph_.tasks[span.task];
    const std::int64_t begin_ns = start_ns + span.begin_ns, end_ns = start_ns + span.end_ns;
    const std::size_t thread =
        threads_.thread_of(span.lane, begin_ns, end_ns, process_, rank_lane_name(plan_, span.lane));
    json args = {{"task", span.task},
                 {"layer", graph_.layer_name(task.layer)},
                 {"kind", to_string(task.kind)},
                 {"op", to_string(task.op)},
                 {"waits_for", waits_for(span.task)},
                 {"waits_for_last", waits_for_last(span.task)}};
    if (step >= 0) args["step"] = step;
    if (is_communication(task.kind)) add_transfer(task, args);
    events_.add({{"ph", "X"},
                 {"pid", process_},
                 {"tid", thread},
                 {"name", graph_.task_name(span.task)},
                 {"cat", to_string(task.kind)},
                 {"cname", colour_of(task.kind)},
                 {"ts", microseconds(begin_ns)},
                 {"dur", microseconds(end_ns - begin_ns)},
                 {"args", args}});
    if (args.contains("message")) add_flow(task.kind, args["message"], step, thread, begin_ns, end_ns);
  }

  void add_transfer(const Task& task, json& args) const {
    const Attrs& attrs = graph_.attrs_of(task);
    std::int64_t bytes = 0;
    const bool is_of_what_it_reads = task.kind == Kind::send || task.kind == Kind::reduce_scatter;
    for (const BufferId b : is_of_what_it_reads ? graph_.reads(task) : graph_.writes(task)) bytes += graph_.bytes(b);
    args["bytes"] = bytes;
    if (attrs.has("message")) {
      args["message"] = attrs.integer("message");
      args["peer"] = attrs.integer("peer");
    } else if (attrs.has("collective") && attrs.has("members")) {
      args["collective"] = attrs.integer("collective");
      args["members"] = attrs.integers("members");
    }
  }

  // From the begin of a send to the end of its recv.
  void add_flow(Kind kind, const json& message, std::int64_t step, std::size_t thread, std::int64_t begin_ns,
                std::int64_t end_ns) {
    const std::string id = "message " + message.dump() + " of step " + std::to_string(step);
    if (kind == Kind::send)
      add_flow_begin(events_, id, process_, thread, begin_ns);
    else
      add_flow_end(events_, id, process_, thread, {begin_ns, end_ns});
  }

  bool is_delayed(TaskId t) const { return graph_.tasks[t].is_delayed; }

  // Of the step that a task belongs to: what is done along with it; and, if it was delayed, what that step left behind.
  json waits_for(TaskId t) const {
    json all = json::array();
    for (const TaskId before : here_.of(t))
      if (is_delayed(before) == is_delayed(t)) all.push_back(before);
    if (!is_delayed(t)) return all;
    for (const TaskId before : before_.of(t))
      if (!is_delayed(before) && gives(before, t)) all.push_back(before);
    return all;
  }
  // Of the step before: what that delayed.
  json waits_for_last(TaskId t) const {
    json all = json::array();
    for (const TaskId before : here_.of(t))
      if (is_delayed(before) && !is_delayed(t)) all.push_back(before);
    return all;
  }
  bool gives(TaskId from, TaskId to) const {
    const auto reads = graph_.reads(to);
    return std::ranges::any_of(graph_.writes(from),
                               [&](BufferId b) { return b != kNone && std::ranges::find(reads, b) != reads.end(); });
  }

  const RankTrace& trace_;
  const Plan& plan_;
  const Graph& graph_;
  std::size_t process_;
  std::int64_t shift_ns_;
  Dependencies here_, before_;
  EventList events_;
  LaneThreads threads_;
};

}  // namespace

std::int64_t first_begin_ns(const RankTrace& trace) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const Trace& t : trace.traces) {
    first = std::min(first, t.start_ns + trace.offset_ns);
    for (const Span& span : t.spans) first = std::min(first, t.start_ns + span.begin_ns + trace.offset_ns);
  }
  return first;
}

std::string rank_events(const RankTrace& trace, std::int64_t origin_ns) { return RankWriter(trace, origin_ns).write(); }

}  // namespace overtake
