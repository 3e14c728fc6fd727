#include "ops/task_operands.h"

#include <algorithm>

namespace overtake {

TaskOperands::TaskOperands(const Graph& graph, TaskId task, const TaskRule& rule, const ParsedTaskRule& parsed)
    : graph_(graph), id_(task), task_(graph.tasks[task]), rule_(rule), parsed_(parsed) {
  std::span<const BufferId> writes = graph.writes(task);
  // What a kernel needs for itself comes last; see add_scratch.
  if (!writes.empty() && writes.back() != kNone && graph.buffers[writes.back()].role == Role::scratch)
    writes = writes.first(writes.size() - 1);
  read_groups_ = bind(graph.reads(task), parsed.reads, parsed.reads_repeat, false);
  write_groups_ = bind(writes, parsed.writes, parsed.writes_repeat, true);
}

std::size_t TaskOperands::bind(std::span<const BufferId> ids, const std::vector<OperandRule>& names, bool repeats,
                               bool is_written) {
  std::size_t least = names.size();
  while (least > 0 && names[least - 1].is_optional) --least;
  const bool fits = repeats ? ids.size() % names.size() == 0 && (!ids.empty() || least == 0)
                            : ids.size() >= least && ids.size() <= names.size();
  if (!fits) fail(fmt::format("{} {} operands", is_written ? "writes" : "reads", ids.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const OperandRule& name = names[i % names.size()];
    if (ids[i] == kNone && !name.is_optional) fail(name.name, kNone, "something");
    operands_.push_back({&name, ids[i], i / names.size(), is_written});
  }
  return repeats ? ids.size() / names.size() : 1;
}

BufferId TaskOperands::find(std::string_view name, std::size_t group, bool is_written) const {
  for (const Bound& o : operands_)
    if (o.is_written == is_written && o.group == group && o.rule->name == name) return o.buffer;
  return kNone;
}

BufferId TaskOperands::read_id(std::string_view name, std::size_t group) const { return find(name, group, false); }
BufferId TaskOperands::write_id(std::string_view name, std::size_t group) const { return find(name, group, true); }

void TaskOperands::fail(const std::string& what) const {
  throw InternalError(fmt::format("task {} ({}): {}; the op's rule is \"{}\"", graph_.task_name(id_),
                                  to_string(task_.op), what, rule_.operands));
}

void TaskOperands::fail(std::string_view name, BufferId operand, const std::string& expected) const {
  if (operand == kNone) fail(fmt::format("its operand {} is absent, not {}", name, expected));
  const Buffer& b = graph_.buffers[operand];
  fail(fmt::format("its operand {} ({}) is {} {}, not {}", name, graph_.buffer_name(operand), to_string(b.dtype),
                   to_string(b.shape), expected));
}

void TaskOperands::expect_shape(std::string_view name, const Shape& shape, std::size_t group) const {
  for (const BufferId b : {read_id(name, group), write_id(name, group)})
    if (b != kNone && graph_.buffers[b].shape != shape) fail(name, b, to_string(shape));
}

void TaskOperands::expect_type(std::string_view name, DType dtype, std::size_t group) const {
  for (const BufferId b : {read_id(name, group), write_id(name, group)})
    if (b != kNone && graph_.buffers[b].dtype != dtype) fail(name, b, std::string(to_string(dtype)));
}

void TaskOperands::expect_float(std::string_view name, std::size_t group) const {
  for (const BufferId b : {read_id(name, group), write_id(name, group)})
    if (b != kNone && !is_float(graph_.buffers[b].dtype)) fail(name, b, "f32 or bf16");
}

// An input itself says more than its gradient does, so gradients are asked last.
std::vector<TensorType> TaskOperands::inputs() const {
  std::vector<TensorType> all(parsed_.inputs_repeat ? read_groups_ : parsed_.inputs, TensorType{{}, DType::f32, false});
  for (const bool from_gradients : {false, true})
    for (const Bound& o : operands_) {
      if (o.rule->is != OperandRule::Is::input || o.rule->is_gradient != from_gradients || o.buffer == kNone) continue;
      TensorType& input = all[parsed_.inputs_repeat ? o.group : o.rule->index];
      if (input.is_present) continue;
      const Buffer& b = graph_.buffers[o.buffer];
      // Shape rules are written for float32; bfloat16 stands for it.
      input = {b.shape, b.dtype == DType::bf16 ? DType::f32 : b.dtype, true};
    }
  return all;
}

void TaskOperands::expect_form() const { expect_form(inputs()); }

void TaskOperands::expect_form(std::vector<TensorType> inputs) const {
  OpForm form;
  try {
    form = traits(task_.op).form(inputs, attrs());
  } catch (const ShapeError& e) {
    std::string shapes;
    for (const TensorType& x : inputs)
      shapes += (shapes.empty() ? "" : ", ") + (x.is_present ? to_string(x.shape) : std::string("none"));
    fail(fmt::format("its inputs {} do not fit: {}", shapes, e.what()));
  }
  for (const Bound& o : operands_) compare(o, inputs, form);
  if (task_.kind != Kind::forward) return;
  // Names that the task has no operands for.
  const auto has = [&](OperandRule::Is is, std::size_t index) {
    return std::ranges::any_of(
        operands_, [&](const Bound& o) { return o.buffer != kNone && o.rule->is == is && o.rule->index == index; });
  };
  for (std::size_t i = 0; i < form.parameters.size(); ++i)
    if (!form.parameters[i].suffix.empty() && !has(OperandRule::Is::parameter, i))
      fail(form.parameters[i].suffix, kNone, to_string(form.parameters[i].shape));
  for (std::size_t i = 0; i < form.outputs.size(); ++i)
    if (!has(OperandRule::Is::output, i))
      fail(form.outputs[i].suffix.empty() ? "result" : form.outputs[i].suffix, kNone, to_string(form.outputs[i].shape));
}

void TaskOperands::compare(const Bound& o, const std::vector<TensorType>& inputs, const OpForm& form) const {
  if (o.buffer == kNone) return;
  switch (o.rule->is) {
    case OperandRule::Is::input: {
      const TensorType& x = inputs[parsed_.inputs_repeat ? o.group : o.rule->index];
      if (!o.rule->may_be_integer && !is_float(graph_.buffers[o.buffer].dtype))
        fail(o.rule->name, o.buffer, fmt::format("f32 {}", to_string(x.shape)));
      return expect_like(o, x.shape, x.dtype);
    }
    case OperandRule::Is::parameter: {
      const ParameterForm& p = form.parameters.at(o.rule->index);
      if (p.suffix.empty()) fail(o.rule->name, o.buffer, "absent, as its attributes say");
      return expect_like(o, p.shape, DType::f32);
    }
    case OperandRule::Is::output:
      if (o.rule->index >= form.outputs.size()) fail(o.rule->name, o.buffer, "absent, as its attributes say");
      return expect_like(o, form.outputs[o.rule->index].shape, form.outputs[o.rule->index].dtype);
    case OperandRule::Is::unknown:
      return;
  }
}

void TaskOperands::expect_like(const Bound& o, const Shape& shape, DType dtype) const {
  const Buffer& b = graph_.buffers[o.buffer];
  Shape seen = b.shape;
  if (o.rule->may_be_taller && seen.rank > 0 && shape.rank > 0) seen[0] = std::min(seen[0], shape[0]);
  const bool has_type = b.dtype == dtype || (!o.rule->is_exact && is_float(dtype) && is_float(b.dtype));
  if (seen != shape || !has_type)
    fail(o.rule->name, o.buffer, fmt::format("{} {}", to_string(dtype), to_string(shape)));
}

}  // namespace overtake
