// What must hold for any graph and any plan. A failure here is a bug in a pass, so it is an InternalError; loading from
// a file turns it into the user's.

#include <algorithm>

#include "base/error.h"
#include "graph/countable.h"
#include "graph/place.h"
#include "overtake/plan.h"

namespace overtake {
namespace {

void verify_tables(const Graph& g) {
  const auto is_buffer = [&](BufferId b) { return b < g.buffers.size(); };
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    const Buffer& x = g.buffers[b];
    OVERTAKE_CHECK(x.layout.rank == x.shape.rank, "buffer {}: a layout of {} dimensions for a shape {}",
                   g.buffer_name(b), x.layout.rank, to_string(x.shape));
    OVERTAKE_CHECK(is_countable(x.shape), "buffer {}: shape {}", g.buffer_name(b), to_string(x.shape));
  }
  for (const Parameter& p : g.parameters)
    OVERTAKE_CHECK(is_buffer(p.buffer) && (p.gradient == kNone || is_buffer(p.gradient)) &&
                       (p.copy == kNone || is_buffer(p.copy)) && p.init.kind <= Init::Kind::normal,
                   "a parameter of buffer {} with gradient {} that starts by rule {}", p.buffer, p.gradient,
                   static_cast<int>(p.init.kind));
  for (const Parameter& p : g.parameters) {
    const Shape& shape = g.buffers[p.buffer].shape;
    const std::int64_t rows = p.stored_rows != 0 ? p.stored_rows : shape.rank > 0 ? shape[0] : 1;
    OVERTAKE_CHECK(!p.stored_shape || (p.parts.empty() && !p.stored_transposed && shape.rank > 0 && shape[0] > 0 &&
                                       p.stored_shape->elements() == shape.elements() / shape[0] * rows),
                   "parameter {} of {} is {} in files", g.buffer_name(p.buffer), to_string(shape),
                   to_string(*p.stored_shape));
  }
  std::vector<char> has_value(g.buffers.size(), 0);
  for (const Constant& c : g.constants) {
    OVERTAKE_CHECK(is_buffer(c.buffer) && g.buffers[c.buffer].role == Role::constant && !has_value[c.buffer] && c.bytes,
                   "a constant of buffer {}", c.buffer);
    const Buffer& b = g.buffers[c.buffer];
    OVERTAKE_CHECK(std::ssize(*c.bytes) == b.shape.elements() * bytes_of(b.dtype), "constant {} has {} bytes for {}",
                   g.buffer_name(c.buffer), c.bytes->size(), to_string(b.shape));
    has_value[c.buffer] = 1;
  }
  for (BufferId b = 0; b < g.buffers.size(); ++b)
    OVERTAKE_CHECK(g.buffers[b].role != Role::constant || has_value[b], "constant {} has no value", g.buffer_name(b));
  for (const BufferId b : g.losses) OVERTAKE_CHECK(is_buffer(b), "the loss is unknown buffer {}", b);
}

// A delayed task finds what its own step left: not inputs, not what that step changed since, nor what lies beside other
// images, each of which is written at a time of its own. What it writes is not for its own step's tasks, nor for the
// host at the end of it.
void verify_delays(const Graph& g, const std::vector<TaskId>& writer) {
  const std::vector<char> is_shared = shared_images(g);
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    const bool is_delayed = g.tasks[t].is_delayed;
    for (const BufferId b : g.reads(t)) {
      if (b == kNone) continue;
      const Role role = g.buffers[b].role;
      const bool is_writer_delayed = writer[b] != kNone && g.tasks[writer[b]].is_delayed;
      OVERTAKE_CHECK(!is_delayed || role != Role::input, "delayed task {} reads input {}", g.task_name(t),
                     g.buffer_name(b));
      OVERTAKE_CHECK(!is_delayed || !is_shared[b], "delayed task {} reads {}, which shares its memory", g.task_name(t),
                     g.buffer_name(b));
      OVERTAKE_CHECK(!is_delayed || !is_persistent(role) || writer[b] == kNone || is_writer_delayed,
                     "delayed task {} reads {}, which has changed by then", g.task_name(t), g.buffer_name(b));
      OVERTAKE_CHECK(is_delayed || !is_writer_delayed || is_persistent(role), "task {} reads {}, which is delayed",
                     g.task_name(t), g.buffer_name(b));
    }
    for (const BufferId b : g.writes(t))
      OVERTAKE_CHECK(!is_delayed || b == kNone || g.buffers[b].role != Role::output, "delayed task {} writes result {}",
                     g.task_name(t), g.buffer_name(b));
  }
}

void verify_operands(const Graph& g) {
  std::vector<TaskId> writer(g.buffers.size(), kNone);
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    const Task& task = g.tasks[t];
    OVERTAKE_CHECK(std::size_t{task.first_read} + task.reads + task.writes <= g.operands.size(),
                   "task {}: operands out of range", t);
    OVERTAKE_CHECK(task.layer < g.layers.size() && task.attrs < g.attrs.size(), "task {}: layer or attributes", t);
    for (const BufferId b : g.reads(t))
      OVERTAKE_CHECK(b == kNone || b < g.buffers.size(), "task {} reads unknown buffer {}", g.task_name(t), b);
    for (const BufferId b : g.writes(t)) {
      if (b == kNone) continue;
      OVERTAKE_CHECK(b < g.buffers.size(), "task {} writes unknown buffer {}", g.task_name(t), b);
      // Every micro-batch goes on with a state where the one before left it.
      const bool goes_on = g.buffers[b].role == Role::state && std::ranges::find(g.reads(t), b) != g.reads(t).end();
      OVERTAKE_CHECK(writer[b] == kNone || goes_on, "buffer {} is written by {} and by {}", g.buffer_name(b),
                     g.task_name(writer[b]), g.task_name(t));
      const Role role = g.buffers[b].role;
      OVERTAKE_CHECK(role != Role::input && role != Role::constant, "task {} writes the {} {}", g.task_name(t),
                     to_string(role), g.buffer_name(b));
      writer[b] = t;
    }
  }
  for (TaskId t = 0; t < g.tasks.size(); ++t)
    for (const BufferId b : g.reads(t))
      OVERTAKE_CHECK(
          b == kNone || writer[b] != kNone || is_persistent(g.buffers[b].role) || g.buffers[b].role == Role::input,
          "task {} reads {}, which nothing writes", g.task_name(t), g.buffer_name(b));
  verify_delays(g, writer);
}

void verify_acyclic(const Graph& g) {
  const Dependencies deps = dependencies(g), next = reversed(deps);
  std::vector<std::uint32_t> waiting(g.tasks.size());
  std::vector<TaskId> ready;
  for (TaskId t = 0; t < g.tasks.size(); ++t)
    if ((waiting[t] = static_cast<std::uint32_t>(deps.of(t).size())) == 0) ready.push_back(t);
  std::size_t done = 0;
  while (!ready.empty()) {
    const TaskId t = ready.back();
    ready.pop_back();
    ++done;
    for (const TaskId after : next.of(t))
      if (--waiting[after] == 0) ready.push_back(after);
  }
  if (done == g.tasks.size()) return;
  for (TaskId t = 0; t < g.tasks.size(); ++t)
    OVERTAKE_CHECK(waiting[t] == 0, "task {} waits for itself", g.task_name(t));
}

void verify_lanes(const Plan& plan) {
  const Graph& g = plan.graph;
  std::vector<char> seen(g.tasks.size(), 0);
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    for (const TaskId t : plan.lanes[l].tasks) {
      OVERTAKE_CHECK(t < g.tasks.size() && !seen[t], "lane {}: task {} is unknown or planned twice", l, t);
      OVERTAKE_CHECK(g.tasks[t].device == plan.lanes[l].device, "task {} is on a lane of another device",
                     g.task_name(t));
      seen[t] = 1;
    }
  }
  for (TaskId t = 0; t < g.tasks.size(); ++t)
    OVERTAKE_CHECK(seen[t] || !plan.is_planned(t), "task {} is on no lane", g.task_name(t));
}

// Neighbours on a lane, of which neither waits for the other.
void verify_joins(const Plan& plan, const Dependencies& deps) {
  OVERTAKE_CHECK(std::ranges::is_sorted(plan.joins), "joins are not sorted");
  std::vector<char> is_joined(plan.graph.tasks.size(), 0);
  std::vector<TaskId> next(plan.graph.tasks.size(), kNone);
  for (const Lane& lane : plan.lanes)
    for (std::size_t i = 1; i < lane.tasks.size(); ++i) next[lane.tasks[i - 1]] = lane.tasks[i];
  for (const Join& j : plan.joins) {
    OVERTAKE_CHECK(j.first < next.size() && j.second < next.size() && next[j.first] == j.second &&
                       !is_joined[j.first] && !is_joined[j.second],
                   "tasks {} and {} are joined, but not neighbours, or joined twice", j.first, j.second);
    is_joined[j.first] = is_joined[j.second] = 1;
    OVERTAKE_CHECK(plan.graph.tasks[j.first].is_delayed == plan.graph.tasks[j.second].is_delayed &&
                       std::ranges::find(deps.of(j.second), j.first) == deps.of(j.second).end(),
                   "task {} is joined with {}, which waits for it", plan.graph.task_name(j.first),
                   plan.graph.task_name(j.second));
  }
}

// Buffers on common bytes must be ordered: all uses of one before the first write of the other, or be declared to
// share. Sweeping over offsets keeps the pairs looked at to those that do overlap.
void verify_memory(const Plan& plan, const HappensBefore& order) {
  const Graph& g = plan.graph;
  const std::vector<BufferUse> uses = buffer_uses(plan);
  for (const Share& s : plan.shares) {
    OVERTAKE_CHECK(s.from < uses.size() && s.to < uses.size() && uses[s.to].writer != kNone,
                   "buffer {} shares the bytes of {}, but nothing writes it", s.to, s.from);
    OVERTAKE_CHECK(plan.offsets[s.from] == plan.offsets[s.to] && g.bytes(s.from) == g.bytes(s.to),
                   "buffers {} and {} share their bytes, but are apart", g.buffer_name(s.from), g.buffer_name(s.to));
  }
  OVERTAKE_CHECK(std::ranges::is_sorted(plan.shares), "shares are not sorted");
  std::vector<BufferId> placed;
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    if (!uses[b].is_used || g.bytes(b) == 0) continue;
    placed.push_back(b);
    OVERTAKE_CHECK(plan.offsets[b] == plan.offsets[holder_of(g, b)] + static_cast<std::uint64_t>(offset_inside(g, b)),
                   "buffer {} is not at its place in {}", g.buffer_name(b), g.buffer_name(holder_of(g, b)));
  }
  std::sort(placed.begin(), placed.end(), [&](BufferId a, BufferId b) { return plan.offsets[a] < plan.offsets[b]; });
  std::vector<BufferId> open;
  for (const BufferId b : placed) {
    const std::uint64_t begin = plan.offsets[b], end = begin + static_cast<std::uint64_t>(g.bytes(b));
    OVERTAKE_CHECK(end <= plan.arena_bytes, "buffer {} lies beyond the arena", g.buffer_name(b));
    OVERTAKE_CHECK(end <= plan.persistent_bytes || !is_persistent(g.buffers[b].role),
                   "buffer {} lies beyond what lives across steps", g.buffer_name(b));
    std::erase_if(open, [&](BufferId a) { return plan.offsets[a] + static_cast<std::uint64_t>(g.bytes(a)) <= begin; });
    for (const BufferId a : open)
      OVERTAKE_CHECK(may_share_bytes(plan, order, uses, a, b), "buffers {} and {} are live at once on the same bytes",
                     g.buffer_name(a), g.buffer_name(b));
    open.push_back(b);
  }
}

}  // namespace

void verify(const Graph& graph) {
  verify_tables(graph);
  verify_places(graph);
  verify_operands(graph);
  verify_acyclic(graph);
}

void verify(const Plan& plan) {
  verify(plan.graph);
  OVERTAKE_CHECK(plan.offsets.empty() || plan.offsets.size() == plan.graph.buffers.size(), "{} offsets for {} buffers",
                 plan.offsets.size(), plan.graph.buffers.size());
  OVERTAKE_CHECK(plan.skipped.empty() || plan.skipped.size() == plan.graph.tasks.size(), "{} flags for {} tasks",
                 plan.skipped.size(), plan.graph.tasks.size());
  verify_lanes(plan);
  for (const Wait& w : plan.waits)
    OVERTAKE_CHECK(w.before < plan.graph.tasks.size() && w.after < plan.graph.tasks.size(),
                   "a wait between tasks {} and {}", w.before, w.after);
  OVERTAKE_CHECK(std::ranges::is_sorted(plan.waits), "waits are not sorted");
  const Dependencies deps = dependencies(plan);
  verify_joins(plan, deps);
  const HappensBefore order = happens_before(plan, deps);  // which finds a lane that waits for ever
  if (!plan.offsets.empty()) verify_memory(plan, order);
}

}  // namespace overtake
