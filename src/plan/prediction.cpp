#include "plan/prediction.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/live_memory.h"

namespace overtake {
namespace {

constexpr std::int64_t kMetricBytes = 16, kUrgentTask = 255;

// At the end of a step all ranks tell one another their losses, after all transfers that may not go on beside the next.
Plan with_end_of_step(Plan plan, std::uint32_t devices) {
  Graph& g = plan.graph;
  std::int64_t collective = 0;
  for (const Task& t : g.tasks)
    if (t.op == Op::transfer && g.attrs_of(t).has("collective"))
      collective = std::max(collective, g.attrs_of(t).integer("collective") + 1);
  const AttrsId attrs = g.add_attrs({{"collective", collective}, {"priority", kUrgentTask}});
  const LayerId layer = g.add_layer("end of step");
  std::vector<TaskId> ends;
  for (std::uint32_t d = 0; d < devices; ++d) {
    Buffer metrics;
    metrics.name = g.intern("metrics");
    metrics.shape = {kMetricBytes};
    metrics.layout = plain_layout(1);
    metrics.dtype = DType::u8;
    metrics.device = static_cast<std::uint16_t>(d);
    g.buffers.insert(g.buffers.end(), 2, metrics);
    const auto written = static_cast<BufferId>(g.buffers.size() - 1);
    ends.push_back(g.add_task(Kind::all_reduce, Op::transfer, layer, attrs, {written - 1}, {written}));
    g.tasks[ends.back()].device = metrics.device;
  }
  std::vector<char> has_end(devices, 0);
  for (Lane& lane : plan.lanes) {
    if (!lane.is_asynchronous) {
      const bool is_side = std::exchange(has_end[lane.device], 1) != 0;
      if (is_side)
        plan.waits.push_back({lane.tasks.back(), ends[lane.device]});
      else
        lane.tasks.push_back(ends[lane.device]);
      continue;
    }
    for (const TaskId t : lane.tasks)
      if (g.tasks[t].kind != Kind::all_reduce) plan.waits.push_back({t, ends[lane.device]});
  }
  std::ranges::sort(plan.waits);
  return plan;
}

PredictedStep one_after_the_other(const Outline& outline) {
  PredictedStep out;
  Plan& plan = out.outline.plan;
  Trace& trace = out.result.trace;
  plan.graph = outline.plan.graph;
  plan.schedule = outline.plan.schedule;
  plan.lanes.resize(1);
  out.outline.work = outline.work;
  for (TaskId t = 0; t < outline.work.size(); ++t) {
    const std::int64_t begin = trace.step_ns;
    trace.step_ns += outline.work[t].ns;  // of transfers none
    plan.graph.tasks[t].device = 0;
    plan.lanes[0].tasks.push_back(t);
    trace.spans.push_back({t, 0, begin, trace.step_ns});
  }
  out.result.is_finished = true;
  return out;
}

}  // namespace

PredictedStep predict_step(Outline outline, const Machine& machine, std::vector<std::uint32_t> devices, int steps,
                           DeviceCopies copies) {
  if (!machine.has_devices()) return one_after_the_other(outline);
  PredictedStep out{.outline = std::move(outline), .devices = std::move(devices), .copies = std::move(copies)};
  if (machine.kind == Machine::Kind::ranks)
    out.outline.plan = with_end_of_step(std::move(out.outline.plan), out.outline.devices);
  out.outline.work.resize(out.outline.plan.graph.tasks.size());
  if (out.devices.empty()) {
    out.devices.resize(machine.topology.device_count);
    std::iota(out.devices.begin(), out.devices.end(), 0u);
  }
  out.steps_in_a_row = steps > 0 ? steps : std::max(1, machine.steps);
  const ClusterJob job = out.job(out.steps_in_a_row);
  out.result = std::move(simulate(machine.cluster, machine.topology, {&job, 1}, machine.options)[0]);
  return out;
}

std::vector<std::int64_t> peak_memory(const PredictedStep& step) {
  std::vector<std::int64_t> peaks;
  for (const std::vector<MemorySample>& samples : live_memory(step.outline.plan, step.result.trace)) {
    peaks.push_back(0);
    for (const MemorySample& s : samples) peaks.back() = std::max(peaks.back(), total_bytes(s));
  }
  return peaks;
}

std::uint32_t first_without_room(const PredictedStep& step, const Machine& machine) {
  if (machine.memory.empty()) return kNone;
  const std::vector<std::int64_t> peaks = peak_memory(step);
  for (std::uint32_t d = 0; d < peaks.size(); ++d) {
    const std::int64_t memory = machine.memory_of(step.devices[d]);
    if (memory > 0 && peaks[d] > memory) return d;
  }
  return kNone;
}

}  // namespace overtake
