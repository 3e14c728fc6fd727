#pragma once
// Plan: a graph with a lane and a place in it for each task and an offset for each buffer. Simulator and executors take
// a Plan and give a Trace.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "overtake/graph.h"

namespace overtake {

// A sequence of tasks on one device that run one after the other: a stream, or a thread with its cores. Tasks of an
// asynchronous lane, which are transfers, start in this order, but do not wait for one another to end.
struct Lane {
  std::uint16_t device = 0;
  std::vector<TaskId> tasks;
  bool is_asynchronous = false;
  bool operator==(const Lane&) const = default;
};

// A result that lies on the bytes of an operand of the task that writes it: computed in place, or a view.
struct Share {
  BufferId from = kNone;
  BufferId to = kNone;
  auto operator<=>(const Share&) const = default;
};

// An order between tasks of two lanes beyond what their operands ask for.
struct Wait {
  TaskId before = kNone;
  TaskId after = kNone;
  auto operator<=>(const Wait&) const = default;
};

// Neighbours on a lane that run as one task, in whatever order their parts come.
struct Join {
  TaskId first = kNone;
  TaskId second = kNone;
  auto operator<=>(const Join&) const = default;
};

struct Plan {
  Graph graph;
  std::string schedule;  // how the lanes were filled, for people
  std::vector<Lane> lanes;
  std::vector<Wait> waits;  // sorted
  std::vector<Join> joins;  // sorted; no task is in two
  // Bytes from the start of the device's arena, per buffer; buffers that live across steps come first. Empty until
  // memory is planned.
  std::vector<std::uint64_t> offsets;
  std::vector<Share> shares;  // sorted
  std::uint64_t persistent_bytes = 0;
  std::uint64_t arena_bytes = 0;
  std::uint64_t live_bytes = 0;  // the largest sum of live bytes at one moment: no placement can be smaller
  // A plan of part of the graph (forward only): tasks not in `lanes` do not run. Empty means all run.
  std::vector<char> skipped;

  // The task that this one is joined with and comes before on the lane, or kNone.
  TaskId joined_to(TaskId first) const;
  bool is_planned(TaskId t) const { return skipped.empty() || !skipped[t]; }
};

void verify(const Plan& plan);
std::string save_json(const Plan& plan);
// Of the graph, and the plan's own waits.
Dependencies dependencies(const Plan& plan);
bool has_delayed_tasks(const Plan& plan);
Plan load_plan_json(std::string_view text);

// Which task is certain to have ended when another starts, by lane order and by dependencies: for each task and lane,
// how many of that lane's tasks.
struct HappensBefore {
  std::size_t lanes = 0;
  std::vector<std::uint32_t> lane_of;   // per task; kNone if it does not run
  std::vector<std::uint32_t> place_of;  // index in its lane
  std::vector<std::uint32_t> seen;      // [task][lane]
  std::vector<TaskId> topological;      // one order in which all could run
  bool is_before(TaskId a, TaskId b) const { return place_of[a] < seen[std::size_t{b} * lanes + lane_of[a]]; }
};
HappensBefore happens_before(const Plan& plan, const Dependencies& deps);

// Who touches a buffer during a step.
struct BufferUse {
  bool is_used = false;
  bool is_whole_step = false;  // lives from before the step to after it: inputs, outputs, weights, states
  bool is_carried = false;     // a delayed task reads it in the next step: lives from its writer on, around the end
  TaskId writer = kNone;
  std::vector<TaskId> readers;
};
std::vector<BufferUse> buffer_uses(const Plan& plan);

// Whether two used buffers may lie on common bytes: one is dead before the other is written, or dies in writing the
// other by a declared Share, or one is a view of the other; or their bytes only seem common, being channels side by
// side. What is carried into the next step is dead only between its last delayed reader and its writer.
bool may_share_bytes(const Plan& plan, const HappensBefore& order, const std::vector<BufferUse>& uses, BufferId a,
                     BufferId b);

// What a run of a plan took: times in nanoseconds from the start of the step.
struct Span {
  TaskId task = 0;
  std::uint32_t lane = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};
struct Trace {
  std::vector<Span> spans;
  std::int64_t step_ns = 0;
  std::int64_t start_ns = 0;  // of the step, on the steady clock of the process that ran it; 0: not known
};
std::string save_json(const Trace& trace);
Trace load_trace_json(std::string_view text);

}  // namespace overtake
