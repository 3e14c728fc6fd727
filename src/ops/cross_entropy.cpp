// metrics[3] = mean cross entropy of softmax(logits) over the rows that count, how many count, how many are right
// forward:    reads logits [..., classes], labels (int32 [...])   writes metrics, lse [rows]
// input_grad: reads logits, labels, lse, metrics                  writes dlogits
// attributes: smoothing, ignore_index, classes (absent: all columns; those beyond take no part), scale (of the
// gradient;
//             absent: 1)

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const TensorType &logits = inputs[0], &labels = inputs[1];
  Shape rows = logits.shape;
  if (rows.rank > 0) rows.rank = static_cast<std::uint8_t>(rows.rank - 1);
  rows.dims[rows.rank] = 0;
  if (logits.shape.rank < 2 || labels.shape != rows || labels.dtype != DType::i32)
    fail_shape("logits {} need int32 labels {}, not {}", to_string(logits.shape), to_string(rows),
               to_string(labels.shape));
  const double smoothing = attrs.real("smoothing", 0.0);
  if (!(smoothing >= 0.0 && smoothing < 1.0))
    fail_shape("label smoothing {}; it must be at least 0 and below 1", smoothing);
  return {.parameters = {}, .outputs = {{"metrics", {3}, DType::f32, Role::output}, {"lse", {rows.elements()}}}};
}

void gradient(Gradient& g) { g.emit(Kind::input_grad, {g.in(0), g.in(1), g.out(1), g.out(0)}, {g.grad_in(0)}); }

std::vector<InPlace> in_place(const Task& t) {
  if (t.kind == Kind::input_grad) return {{0, 0}};
  return {};
}

constexpr TaskRule kTasks[] = {{kForward, "logits labels# -> metrics! lse!"},
                               {kGradient, "logits labels# lse! metrics! -> dlogits"}};

}  // namespace

OpTraits cross_entropy_traits() {
  return {.op = Op::cross_entropy, .form = form, .gradient = gradient, .in_place = in_place, .tasks = kTasks};
}

}  // namespace overtake
