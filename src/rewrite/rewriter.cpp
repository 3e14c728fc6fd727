#include "rewrite/rewriter.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "ops/op.h"

namespace overtake {

Rewriter::Rewriter(Graph graph) : graph_(std::move(graph)) {
  grow_to_buffers();
  gone_.assign(graph_.tasks.size(), 0);
  original_tasks_ = graph_.tasks.size();
  for (std::uint32_t i = 0; i < graph_.constants.size(); ++i) value_[graph_.constants[i].buffer] = i;
  for (BufferId b = 0; b < graph_.buffers.size(); ++b) readers_[b] += role(b) == Role::output || is_loss(b);
  for (TaskId t = 0; t < graph_.tasks.size(); ++t) {
    for (const BufferId b : graph_.reads(t))
      if (b != kNone) ++readers_[b];
    for (const BufferId b : graph_.writes(t))
      if (b != kNone && !is_persistent(role(b))) writer_[b] = t;
  }
  for (auto t = static_cast<TaskId>(graph_.tasks.size()); t-- > 0;)
    if (!is_gone(t) && !is_needed(t)) drop(t);
}

void Rewriter::grow_to_buffers() {
  const std::size_t n = graph_.buffers.size();
  writer_.resize(n, kNone);
  readers_.resize(n, 0);
  value_.resize(n, kNone);
  while (instead_.size() < n) instead_.push_back(static_cast<BufferId>(instead_.size()));
}

BufferId Rewriter::resolve(BufferId b) const {
  while (b != kNone && instead_[b] != b) b = instead_[b];
  return b;
}

bool Rewriter::is_loss(BufferId b) const { return std::ranges::find(graph_.losses, b) != graph_.losses.end(); }

std::vector<BufferId> Rewriter::ins(TaskId t) const {
  std::vector<BufferId> all(graph_.reads(t).begin(), graph_.reads(t).end());
  for (BufferId& b : all) b = resolve(b);
  return all;
}

TaskId Rewriter::writer(BufferId b, Op op) const {
  const TaskId t = writer(b);
  return t != kNone && graph_.tasks[t].op == op ? t : kNone;
}

TaskId Rewriter::writer_of_function(BufferId b, std::string_view function) const {
  const TaskId t = writer(b, Op::activation);
  return t != kNone && attrs(t).text("function") == function ? t : kNone;
}

std::span<const float> Rewriter::values(BufferId b) const {
  if (b == kNone || value_[b] == kNone || graph_.buffers[b].dtype != DType::f32) return {};
  const std::vector<std::byte>& bytes = *graph_.constants[value_[b]].bytes;
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::optional<double> Rewriter::scalar(BufferId b) const {
  const auto all = values(b);
  if (all.size() != 1) return std::nullopt;
  return static_cast<double>(all[0]);
}

// A task is needed for what others read of it. The statistics that a norm keeps for later are of no use without it.
bool Rewriter::is_needed(TaskId t) const {
  return std::ranges::any_of(graph_.writes(t),
                             [&](BufferId b) { return b != kNone && !is_persistent(role(b)) && readers_[b] > 0; });
}

void Rewriter::drop(TaskId t) {
  gone_[t] = 1;
  changed_ = true;
  release(ins(t));
}

// Counts these as no longer read, and lets what was made for them alone go, and so on.
void Rewriter::release(std::vector<BufferId> reads) {
  while (!reads.empty()) {
    const BufferId b = reads.back();
    reads.pop_back();
    if (b == kNone) continue;
    --readers_[b];
    const TaskId t = writer_[b];
    if (t == kNone || is_gone(t) || is_needed(t)) continue;
    gone_[t] = 1;
    const std::vector<BufferId> further = ins(t);
    reads.insert(reads.end(), further.begin(), further.end());
  }
}

// The results of a task by its op's own rule; the first is `first` where that is given.
std::vector<BufferId> Rewriter::make_results(TaskId t, const std::vector<BufferId>& inputs, BufferId first) {
  std::vector<TensorType> types;
  for (const BufferId b : inputs)
    types.push_back(b == kNone ? TensorType{{}, DType::f32, false} : TensorType{shape(b), graph_.buffers[b].dtype});
  const OpForm form = traits(op(t)).form(types, attrs(t));
  std::vector<BufferId> writes;
  for (const OutputForm& o : form.outputs) {
    if (writes.empty() && first != kNone) {
      OVERTAKE_CHECK(o.shape == shape(first), "task {} becomes {}, which makes {} instead of {}", graph_.task_name(t),
                     to_string(op(t)), to_string(o.shape), to_string(shape(first)));
      writes.push_back(first);
      continue;
    }
    const std::string name = fmt::format("{}.{}", graph_.layer_name(graph_.tasks[t].layer),
                                         o.suffix.empty() ? to_string(op(t)) : std::string_view(o.suffix));
    writes.push_back(graph_.add_buffer(name, o.shape, o.dtype, o.role));
  }
  grow_to_buffers();
  return writes;
}

void Rewriter::set_task(TaskId t, std::vector<BufferId> reads, const std::vector<BufferId>& writes) {
  for (const BufferId b : reads)
    if (b != kNone) ++readers_[b];
  for (const BufferId b : writes) writer_[b] = t;
  graph_.set_operands(t, reads, writes);
  changed_ = true;
}

BufferId Rewriter::insert(TaskId before, Op op, const Attrs& attrs, std::vector<BufferId> inputs,
                          std::vector<BufferId> parameters) {
  const LayerId layer = graph_.tasks[before].layer;
  const TaskId t = graph_.add_task(Kind::forward, op, layer, graph_.add_attrs(attrs), {}, {});
  gone_.push_back(0);
  inserted_.push_back(t);
  const std::vector<BufferId> writes = make_results(t, inputs, kNone);
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  set_task(t, std::move(inputs), writes);
  return writes[0];
}

void Rewriter::become(TaskId t, Op op, const Attrs& attrs, std::vector<BufferId> inputs,
                      std::vector<BufferId> parameters) {
  const std::vector<BufferId> old = ins(t);
  graph_.tasks[t].op = op;
  graph_.tasks[t].attrs = graph_.add_attrs(attrs);
  const std::vector<BufferId> writes = make_results(t, inputs, out(t));
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  set_task(t, std::move(inputs), writes);
  release(old);
}

void Rewriter::bypass(TaskId t, BufferId b) {
  const BufferId old = out(t);
  OVERTAKE_CHECK(can_bypass(t) && shape(old) == shape(b), "task {} cannot be left out", graph_.task_name(t));
  readers_[b] += readers_[old];
  readers_[old] = 0;
  instead_[old] = b;
  drop(t);
}

BufferId Rewriter::add_constant(const Shape& shape, std::string_view name,
                                std::shared_ptr<const std::vector<std::byte>> bytes) {
  const BufferId b = graph_.add_buffer(name, shape, DType::f32, Role::constant);
  grow_to_buffers();
  value_[b] = static_cast<std::uint32_t>(graph_.constants.size());
  graph_.constants.push_back({b, std::move(bytes)});
  return b;
}

BufferId Rewriter::filled(const Shape& shape, float value) {
  const std::vector<float> numbers(static_cast<std::size_t>(shape.elements()), value);
  const auto bytes = std::as_bytes(std::span(numbers));
  return add_constant(shape, fmt::format("all_{}", value),
                      std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()));
}

BufferId Rewriter::reshaped_parameter(BufferId b, const Shape& shape) {
  if (shape == this->shape(b)) return b;
  if (role(b) == Role::constant)
    return add_constant(shape, std::string(graph_.buffer_name(b)), graph_.constants[value_[b]].bytes);
  OVERTAKE_CHECK(readers_[b] == 1, "weight {} has {} readers", graph_.buffer_name(b), readers_[b]);
  const auto parameter = std::ranges::find(graph_.parameters, b, &Parameter::buffer);
  if (!parameter->stored_shape) parameter->stored_shape = this->shape(b);
  graph_.buffers[b].shape = shape;
  graph_.buffers[b].layout = plain_layout(shape.rank);
  return b;
}

std::vector<TaskId> Rewriter::take_inserted() { return std::exchange(inserted_, {}); }

// The old tasks in their old order, each after the new ones that it needs.
std::vector<TaskId> Rewriter::order() const {
  std::vector<TaskId> all;
  std::vector<char> done(graph_.tasks.size(), 0);
  const std::function<void(TaskId)> place = [&](TaskId t) {
    if (t == kNone || done[t]) return;
    done[t] = 1;
    for (const BufferId b : ins(t)) place(writer(b));
    all.push_back(t);
  };
  for (TaskId t = 0; t < original_tasks_; ++t)
    if (!is_gone(t)) place(t);
  return all;
}

void Rewriter::drop_unused_buffers() {
  std::vector<char> used(graph_.buffers.size(), 0);
  for (BufferId b = 0; b < used.size(); ++b) used[b] = role(b) == Role::input;
  for (const BufferId b : graph_.operands)
    if (b != kNone) used[b] = 1;
  std::vector<BufferId> now(graph_.buffers.size(), kNone);
  std::vector<Buffer> kept;
  for (BufferId b = 0; b < used.size(); ++b) {
    if (!used[b]) continue;
    now[b] = static_cast<BufferId>(kept.size());
    kept.push_back(graph_.buffers[b]);
  }
  graph_.buffers = std::move(kept);
  std::erase_if(graph_.parameters, [&](const Parameter& p) { return !used[p.buffer]; });
  std::erase_if(graph_.constants, [&](const Constant& c) { return !used[c.buffer]; });
  for (Parameter& p : graph_.parameters) p.buffer = now[p.buffer];
  for (Constant& c : graph_.constants) c.buffer = now[c.buffer];
  for (BufferId& b : graph_.losses) b = now[b];
  for (BufferId& b : graph_.operands)
    if (b != kNone) b = now[b];
}

Graph Rewriter::finish() && {
  const bool has_unread = std::ranges::any_of(graph_.parameters, [&](const auto& p) { return !readers_[p.buffer]; }) ||
                          std::ranges::any_of(graph_.constants, [&](const auto& c) { return !readers_[c.buffer]; });
  if (!changed_ && !has_unread) return std::move(graph_);
  std::vector<Task> tasks;
  std::vector<BufferId> operands;
  for (const TaskId t : order()) {
    Task task = graph_.tasks[t];
    const std::vector<BufferId> reads = ins(t);
    const auto writes = graph_.writes(t);
    task.first_read = static_cast<std::uint32_t>(operands.size());
    operands.insert(operands.end(), reads.begin(), reads.end());
    operands.insert(operands.end(), writes.begin(), writes.end());
    tasks.push_back(task);
  }
  graph_.tasks = std::move(tasks);
  graph_.operands = std::move(operands);
  drop_unused_buffers();
  return std::move(graph_);
}

}  // namespace overtake
