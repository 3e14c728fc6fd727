#include "passes/weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "rewrite/uses.h"

namespace overtake {

namespace {

// The gradients that the users of a weight make: one, or all that are added up to it. Empty where one of them is not
// a gradient of the weight alone.
std::vector<BufferId> parts_of_gradient(const Graph& g, BufferId gradient, const std::vector<TaskId>& writer) {
  const TaskId t = writer[gradient];
  if (t == kNone || g.tasks[t].op != Op::sum) return {gradient};
  const std::vector<BufferId> parts(g.reads(t).begin(), g.reads(t).end());
  const bool are_own =
      std::ranges::all_of(parts, [&](BufferId b) { return g.buffers[b].role == Role::weight_gradient; });
  return are_own ? parts : std::vector<BufferId>{};
}

// How the task that writes it wants it.
std::optional<OperandFormat> written_format(const Graph& g, const Target& target, BufferId b, TaskId t) {
  if (t == kNone) return {};
  const auto writes = g.writes(t);
  const auto place = static_cast<std::size_t>(std::ranges::find(writes, b) - writes.begin());
  return target.weight_format(g, g.tasks[t], g.tasks[t].reads + place);
}

}  // namespace

Graph store_weights(Graph g, const Target& target) {
  const std::vector<TaskId> writer = Uses(g).writer;
  for (const Parameter& p : g.parameters) {
    if (p.gradient == kNone) continue;
    const std::vector<BufferId> parts = parts_of_gradient(g, p.gradient, writer);
    std::optional<OperandFormat> common;
    // Gradients must lie alike to be added: where the users of a weight differ, it stays plain.
    bool agree = !parts.empty();
    for (const BufferId b : parts) {
      const auto format = written_format(g, target, b, writer[b]);
      agree = agree && format && (!common || *common == *format);
      common = format;
    }
    if (!agree) continue;
    for (const BufferId b : parts) {
      g.buffers[b].layout = common->layout;
      g.buffers[b].dtype = common->dtype;
    }
    g.buffers[p.gradient].layout = g.buffers[p.buffer].layout = common->layout;
    g.buffers[p.gradient].dtype = common->dtype;
  }
  return g;
}

namespace {

// The parameter whose update can write its weight in this format as well, or null.
Parameter* updated_with(Graph& g, BufferId weight, const OperandFormat& format) {
  if (format.layout != g.buffers[weight].layout) return nullptr;
  const auto p = std::ranges::find(g.parameters, weight, &Parameter::buffer);
  if (p == g.parameters.end() || p->gradient == kNone) return nullptr;
  const bool is_free = p->copy == kNone || g.buffers[p->copy].dtype == format.dtype;
  return is_free ? &*p : nullptr;
}

// Gives updates the copies of their weights, as the last of what they read and write.
void write_copies(Graph& g) {
  std::map<BufferId, BufferId> copy_of;
  for (const Parameter& p : g.parameters)
    if (p.copy != kNone) copy_of[p.buffer] = p.copy;
  for (TaskId t = 0; t < g.tasks.size(); ++t) {
    if (g.tasks[t].op != Op::sgd && g.tasks[t].op != Op::adamw) continue;
    const auto copy = copy_of.find(g.writes(t)[0]);
    if (copy == copy_of.end()) continue;
    std::vector<BufferId> reads(g.reads(t).begin(), g.reads(t).end()), writes(g.writes(t).begin(), g.writes(t).end());
    reads.back() = writes.back() = copy->second;
    g.set_operands(t, reads, writes);
  }
}

}  // namespace

Graph pack_weights(Graph g, const Target& target) {
  const Graph old = g;
  g.tasks.clear();
  g.operands.clear();
  std::map<std::pair<BufferId, std::string>, BufferId> made;
  for (TaskId t = 0; t < old.tasks.size(); ++t) {
    const Task& task = old.tasks[t];
    std::vector<BufferId> reads(old.reads(t).begin(), old.reads(t).end());
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (reads[i] == kNone || task.kind == Kind::update) continue;
      const Role role = g.buffers[reads[i]].role;
      if (role != Role::weight && role != Role::constant) continue;
      const auto format = target.weight_format(old, task, i);
      const Buffer stored = g.buffers[reads[i]];
      if (!format || *format == OperandFormat{stored.dtype, stored.layout}) continue;
      if (Parameter* p = target.updates_write_copies() ? updated_with(g, reads[i], *format) : nullptr) {
        if (p->copy == kNone) {
          p->copy = g.add_buffer(fmt::format("{}.{}", g.buffer_name(reads[i]), to_string(format->dtype)), stored.shape,
                                 format->dtype, Role::weight_copy);
          g.buffers[p->copy].layout = format->layout;
        }
        reads[i] = p->copy;
        continue;
      }
      const std::string key = fmt::format("{}.{}", to_string(format->layout), to_string(format->dtype));
      BufferId& packed = made.try_emplace({reads[i], key}, kNone).first->second;
      if (packed == kNone) {
        packed = g.add_buffer(fmt::format("{}.{}", g.buffer_name(reads[i]), key), stored.shape, format->dtype,
                              Role::activation);
        g.buffers[packed].layout = format->layout;
        // Named after the weight. Its kind is the user's, so that a forward-only plan has what it needs and no more.
        g.add_task(task.kind, Op::reorder, g.add_layer(std::string(g.buffer_name(reads[i]))), 0, {reads[i]}, {packed});
      }
      reads[i] = packed;
    }
    add_like(g, task, reads, old.writes(t));
  }
  write_copies(g);
  return g;
}

Graph group_updates(Graph g, std::int64_t most_elements) {
  const Graph old = g;
  g.tasks.clear();
  g.operands.clear();
  std::vector<BufferId> reads, writes;
  std::int64_t elements = 0;
  const Task* first = nullptr;
  const auto flush = [&] {
    if (first != nullptr) add_like(g, *first, reads, writes);
    first = nullptr;
    elements = 0;
    reads.clear();
    writes.clear();
  };
  for (TaskId t = 0; t < old.tasks.size(); ++t) {
    const Task& task = old.tasks[t];
    if (task.op != Op::sgd && task.op != Op::adamw) {
      flush();
      add_like(g, task, old.reads(t), old.writes(t));
      continue;
    }
    const std::int64_t own = old.buffers[old.writes(t)[0]].shape.elements();
    const bool fits = first != nullptr && first->op == task.op && first->attrs == task.attrs &&
                      first->device == task.device && elements + own <= most_elements;
    if (!fits) flush();
    if (first == nullptr) first = &task;
    elements += own;
    reads.insert(reads.end(), old.reads(t).begin(), old.reads(t).end());
    writes.insert(writes.end(), old.writes(t).begin(), old.writes(t).end());
  }
  flush();
  return g;
}

void add_scratch(Graph& g, TaskId t, const Target& target) {
  const std::int64_t bytes = target.scratch_bytes(g, g.tasks[t]);
  if (bytes == 0) return;
  const BufferId scratch = g.add_buffer(fmt::format("{}.scratch", g.task_name(t)), {bytes}, DType::u8, Role::scratch);
  g.buffers[scratch].device = g.tasks[t].device;
  std::vector<BufferId> writes(g.writes(t).begin(), g.writes(t).end());
  writes.push_back(scratch);
  g.set_operands(t, g.reads(t), writes);
}

Graph add_scratch(Graph g, const Target& target) {
  for (TaskId t = 0; t < g.tasks.size(); ++t) add_scratch(g, t, target);
  return g;
}

}  // namespace overtake
