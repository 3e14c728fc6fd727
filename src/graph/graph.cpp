#include "overtake/graph.h"

#include <algorithm>

#include "base/error.h"

namespace overtake {

StringId Graph::intern(std::string_view text) {
  const auto [it, is_new] = string_ids_.try_emplace(std::string(text), static_cast<StringId>(strings_.size()));
  if (is_new) strings_.emplace_back(text);
  return it->second;
}

AttrsId Graph::add_attrs(const Attrs& value) {
  const auto [it, is_new] = attrs_ids_.try_emplace(value, static_cast<AttrsId>(attrs.size()));
  if (is_new) attrs.push_back(value);
  return it->second;
}

LayerId Graph::add_layer(std::string_view name) {
  layers.push_back(intern(name));
  return static_cast<LayerId>(layers.size() - 1);
}

BufferId Graph::add_buffer(std::string_view name, const Shape& shape, DType dtype, Role role) {
  buffers.push_back(
      {.name = intern(name), .shape = shape, .layout = plain_layout(shape.rank), .dtype = dtype, .role = role});
  return static_cast<BufferId>(buffers.size() - 1);
}

TaskId Graph::add_task(Kind kind, Op op, LayerId layer, AttrsId attrs_id, std::span<const BufferId> task_reads,
                       std::span<const BufferId> task_writes) {
  tasks.push_back({.kind = kind, .op = op, .layer = layer, .attrs = attrs_id});
  const auto id = static_cast<TaskId>(tasks.size() - 1);
  set_operands(id, task_reads, task_writes);
  return id;
}

TaskId Graph::add_task(Kind kind, Op op, LayerId layer, AttrsId attrs_id, std::initializer_list<BufferId> task_reads,
                       std::initializer_list<BufferId> task_writes) {
  return add_task(kind, op, layer, attrs_id, std::span(task_reads.begin(), task_reads.size()),
                  std::span(task_writes.begin(), task_writes.size()));
}

void Graph::set_operands(TaskId id, std::span<const BufferId> task_reads, std::span<const BufferId> task_writes) {
  OVERTAKE_CHECK(task_reads.size() <= 0xffff && task_writes.size() <= 0xffff, "task {}: {} reads and {} writes", id,
                 task_reads.size(), task_writes.size());
  // The spans may point into `operands` itself.
  std::vector<BufferId> both(task_reads.begin(), task_reads.end());
  both.insert(both.end(), task_writes.begin(), task_writes.end());
  Task& task = tasks[id];
  task.first_read = static_cast<std::uint32_t>(operands.size());
  task.reads = static_cast<std::uint16_t>(task_reads.size());
  task.writes = static_cast<std::uint16_t>(task_writes.size());
  operands.insert(operands.end(), both.begin(), both.end());
}

std::string Graph::task_name(TaskId id) const {
  const Task& t = tasks[id];
  std::string name = fmt::format("{}.{}", layer_name(t.layer), to_string(t.kind));
  if (t.micro_batch != 0) name += fmt::format("#{}", t.micro_batch);
  return name;
}

std::int64_t Graph::bytes(BufferId id) const {
  const Buffer& b = buffers[id];
  return padded_elements(b.layout, b.shape.span()) * bytes_of(b.dtype);
}

bool is_persistent(Role role) {
  return role == Role::weight || role == Role::state || role == Role::optimizer_state || role == Role::weight_copy ||
         role == Role::constant;
}

namespace {

std::vector<TaskId> writers_of(const Graph& graph) {
  std::vector<TaskId> writer(graph.buffers.size(), kNone);
  for (TaskId t = 0; t < graph.tasks.size(); ++t)
    for (const BufferId b : graph.writes(t))
      if (b != kNone) writer[b] = t;
  return writer;
}

// Calls visit(reader, buffer, reads_first) for every buffer that another task writes. What lives across steps is read
// before it is changed; everything else after it is written. Between steps it is the delayed one that comes first.
template <class Visit>
void for_each_read(const Graph& graph, const std::vector<TaskId>& writer, Visit visit) {
  for (TaskId t = 0; t < graph.tasks.size(); ++t) {
    for (const BufferId b : graph.reads(t)) {
      if (b == kNone || writer[b] == kNone || writer[b] == t) continue;
      const bool is_late_reader = graph.tasks[t].is_delayed, is_late_writer = graph.tasks[writer[b]].is_delayed;
      visit(
          t, b,
          is_persistent(graph.buffers[b].role) ? is_late_reader == is_late_writer : is_late_reader && !is_late_writer);
    }
  }
}

// Calls visit(task) for those that write what a buffer shows: its own writer, and where that makes a view, the writer
// of what is viewed. What lives across steps is no view.
template <class Visit>
void for_each_writer(const Graph& graph, const std::vector<TaskId>& writer, BufferId b, Visit visit) {
  visit(writer[b]);
  if (is_persistent(graph.buffers[b].role)) return;
  for (TaskId w = writer[b]; graph.tasks[w].op == Op::reshape;) {
    const BufferId shown = graph.reads(w)[0];
    if (writer[shown] == kNone || is_persistent(graph.buffers[shown].role)) break;
    visit(w = writer[shown]);
  }
}

}  // namespace

Dependencies dependencies(const Graph& graph) {
  const std::vector<TaskId> writer = writers_of(graph);
  std::vector<std::pair<TaskId, TaskId>> edges;  // (after, before)
  for_each_read(graph, writer, [&](TaskId reader, BufferId b, bool reads_first) {
    if (reads_first) {
      for_each_writer(graph, writer, b, [&](TaskId w) { edges.emplace_back(w, reader); });
    } else {
      edges.emplace_back(reader, writer[b]);
    }
  });
  return dependencies_from(std::move(edges), graph.tasks.size());
}

Dependencies dependencies_across_steps(const Graph& graph) {
  const std::vector<TaskId> writer = writers_of(graph);
  std::vector<std::pair<TaskId, TaskId>> edges;  // (after, before)
  for_each_read(graph, writer, [&](TaskId reader, BufferId b, bool reads_first) {
    if (reads_first) {
      edges.emplace_back(reader, writer[b]);
    } else {
      for_each_writer(graph, writer, b, [&](TaskId w) { edges.emplace_back(w, reader); });
    }
  });
  return dependencies_from(std::move(edges), graph.tasks.size());
}

Dependencies dependencies_from(std::vector<std::pair<TaskId, TaskId>> edges, std::size_t n) {
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());

  Dependencies deps;
  deps.first.assign(n + 1, 0);
  deps.list.reserve(edges.size());
  for (const auto& [after, before] : edges) {
    ++deps.first[after + 1];
    deps.list.push_back(before);
  }
  for (std::size_t i = 0; i < n; ++i) deps.first[i + 1] += deps.first[i];
  return deps;
}

Dependencies reversed(const Dependencies& deps) {
  const std::size_t n = deps.first.size() - 1;
  Dependencies out;
  out.first.assign(n + 1, 0);
  out.list.resize(deps.list.size());
  for (const TaskId before : deps.list) ++out.first[before + 1];
  for (std::size_t i = 0; i < n; ++i) out.first[i + 1] += out.first[i];
  std::vector<std::uint32_t> next(out.first.begin(), out.first.end() - 1);
  for (TaskId after = 0; after < n; ++after)
    for (const TaskId before : deps.of(after)) out.list[next[before]++] = after;
  return out;
}

}  // namespace overtake
