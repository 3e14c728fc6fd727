#include "train/sample_form.h"

namespace overtake {

SampleForm sample_form_of(const Graph& g) {
  SampleForm form;
  const auto dims_of = [](const Shape& s) { return std::vector<std::int64_t>(s.span().begin() + 1, s.span().end()); };
  for (BufferId b = 0; b < g.buffers.size(); ++b) {
    const Buffer& x = g.buffers[b];
    if (x.role != Role::input) continue;
    const std::string& name = g.buffer_name(b);
    if (name == "targets") {
      form.label = LabelForm::targets;
      form.label_dims = dims_of(x.shape);
    } else if (name == "labels") {
      form.label_dims = dims_of(x.shape);
      form.label = form.label_dims.empty() ? LabelForm::class_per_sample : LabelForm::class_per_position;
    } else if (name == "tokens") {
      form.input = InputForm::tokens;
      form.input_dims = dims_of(x.shape);
    } else if (name == "input") {
      form.input_dims = dims_of(x.shape);
    }
  }
  for (const Task& t : g.tasks) {
    if (t.kind != Kind::forward) continue;
    if (t.op == Op::cross_entropy)
      form.classes = g.attrs_of(t).integer("classes", g.buffers[g.reads(t)[0]].shape.back());
    if (t.op == Op::embedding && g.buffers[g.reads(t)[0]].role == Role::input)
      form.vocabulary = g.attrs_of(t).integer("vocabulary");
    if (t.op == Op::attention && g.attrs_of(t).integer("causal", 0) == 0) form.sees_ahead = true;
  }
  return form;
}

}  // namespace overtake
