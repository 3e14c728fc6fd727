#include "report/device_time.h"

#include "report/intervals.h"

namespace overtake {
namespace {

// Adds the span, folded into [0, step).
void add(Intervals& list, const Span& span, std::int64_t step) {
  if (span.end_ns - span.begin_ns >= step) return list.push_back({0, step});
  const std::int64_t begin = span.begin_ns % step, end = begin + span.end_ns - span.begin_ns;
  list.push_back({begin, std::min(end, step)});
  if (end > step) list.push_back({0, end - step});
}

}  // namespace

std::vector<DeviceTime> device_times(const Plan& plan, const Trace& trace) {
  std::size_t devices = 1;
  for (const Lane& lane : plan.lanes) devices = std::max(devices, std::size_t{lane.device} + 1);
  std::vector<DeviceTime> times(devices);
  if (trace.step_ns <= 0) return times;
  std::vector<Intervals> busy(devices), any(devices);
  for (const Span& span : trace.spans) {
    const Task& task = plan.graph.tasks[span.task];
    add(any[task.device], span, trace.step_ns);
    if (task.op != Op::transfer) add(busy[task.device], span, trace.step_ns);
  }
  for (std::size_t d = 0; d < devices; ++d) {
    const std::int64_t used = length(any[d]);
    times[d].busy_ns = length(busy[d]);
    times[d].exposed_ns = used - times[d].busy_ns;
    times[d].bubble_ns = trace.step_ns - used;
  }
  return times;
}

}  // namespace overtake
