// y = softmax of x along an axis
// forward: reads x   writes y;   input_grad: reads y, dy   writes dx
// attributes: axis

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const std::int64_t axis = attrs.integer("axis");
  if (axis < 0 || axis >= inputs[0].shape.rank) fail_shape("axis {} of an input {}", axis, to_string(inputs[0].shape));
  return {.parameters = {}, .outputs = {{"", inputs[0].shape, inputs[0].dtype}}};
}

void gradient(Gradient& g) { g.emit(Kind::input_grad, {g.out(0), g.grad_out(0)}, {g.grad_in(0)}); }

constexpr TaskRule kTasks[] = {{kForward, "x -> y"}, {kGradient, "y dy -> dx"}};

}  // namespace

OpTraits softmax_traits() { return {.op = Op::softmax, .form = form, .gradient = gradient, .tasks = kTasks}; }

}  // namespace overtake
