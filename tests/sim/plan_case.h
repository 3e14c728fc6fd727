#pragma once
// Plans over several devices, put together by hand.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "sim/cluster_simulator.h"

namespace overtake::tests {

struct PlanCase {
  // A lane for tasks and an asynchronous one for transfers per device; lane(d) and wire(d).
  explicit PlanCase(std::uint16_t devices) {
    plan.graph.intern("b");
    for (std::uint16_t d = 0; d < devices; ++d) {
      plan.lanes.push_back({.device = d, .tasks = {}, .is_asynchronous = false});
      plan.lanes.push_back({.device = d, .tasks = {}, .is_asynchronous = true});
    }
  }
  static std::size_t lane(std::size_t device) { return 2 * device; }
  static std::size_t wire(std::size_t device) { return 2 * device + 1; }

  BufferId buffer(std::int64_t bytes = 4, Role role = Role::activation) {
    return plan.graph.add_buffer("b", {bytes}, DType::u8, role);
  }

  // On a lane. `name` is of its layer.
  TaskId add(std::size_t lane_index, const std::string& name, Kind kind, TaskCost w,
             std::initializer_list<BufferId> reads, std::initializer_list<BufferId> writes, AttrsId attrs = 0) {
    const bool is_transfer = kind >= Kind::all_reduce && kind <= Kind::recv;
    Graph& g = plan.graph;
    const TaskId t = g.add_task(kind, is_transfer ? Op::transfer : Op::block, g.add_layer(name), attrs, reads, writes);
    g.tasks[t].device = plan.lanes[lane_index].device;
    plan.lanes[lane_index].tasks.push_back(t);
    for (const BufferId b : writes) g.buffers[b].device = plan.lanes[lane_index].device;
    work.push_back(w);
    return t;
  }
  TaskId run(std::size_t lane_index, std::int64_t ns, std::initializer_list<BufferId> reads = {},
             std::initializer_list<BufferId> writes = {}, const std::string& name = "task") {
    return add(lane_index, name, Kind::forward, {.ns = ns}, reads, writes);
  }
  // What arrives.
  BufferId send(std::size_t from_lane, std::size_t to_lane, BufferId x) {
    const BufferId message = buffer(0), y = buffer(plan.graph.bytes(x));
    sends.push_back(add(from_lane, "x", Kind::send, {}, {x}, {message}));
    recvs.push_back(add(to_lane, "x", Kind::recv, {}, {message}, {y}));
    return y;
  }
  TaskId collective(std::size_t lane_index, std::int64_t number, BufferId x, BufferId y, std::int64_t priority = 0,
                    Kind kind = Kind::all_reduce) {
    const AttrsId attrs = plan.graph.add_attrs({{"collective", number}, {"priority", priority}});
    return add(lane_index, "c" + std::to_string(number), kind, {}, {x}, {y}, attrs);
  }

  ClusterJob job(int steps = 1) const {
    ClusterJob job{.plan = &plan, .work = work, .steps = steps};
    for (std::uint32_t d = 0; d < plan.lanes.size() / 2; ++d) job.devices.push_back(d);
    return job;
  }

  Plan plan;
  std::vector<TaskCost> work;
  std::vector<TaskId> sends, recvs;
};

// Only the links, and nothing slows anything.
inline ClusterOptions plain() { return {.protocol = Protocol::ideal, .overlap_slows = false}; }

inline JobResult simulate_one(const Cluster& cluster, const ClusterJob& job, const ClusterOptions& options = plain()) {
  return simulate(cluster, make_topology(cluster), {&job, 1}, options)[0];
}

inline Span span_of(const Trace& trace, TaskId t) {
  for (const Span& s : trace.spans)
    if (s.task == t) return s;
  return {kNone, 0, -1, -1};
}

}  // namespace overtake::tests
