// y = x / (1 - p) where the random number of (seed, step, salt, element) is at least p, else 0; y = x in evaluation
// forward: reads x   writes y;   input_grad: reads dy   writes dx
// attributes: p, salt (which dropout of which micro-batch this is), training (0: evaluation)

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const double p = attrs.real("p");
  if (!(p >= 0.0 && p < 1.0)) fail_shape("probability {}; it must be at least 0 and below 1", p);
  return {.parameters = {}, .outputs = {{"", inputs[0].shape, inputs[0].dtype}}};
}

void gradient(Gradient& g) { g.emit(Kind::input_grad, {g.grad_out(0)}, {g.grad_in(0)}); }

std::vector<InPlace> in_place(const Task&) { return {{0, 0}}; }

constexpr TaskRule kTasks[] = {{kForward, "x -> y"}, {kGradient, "dy -> dx"}};

}  // namespace

OpTraits dropout_traits() {
  return {.op = Op::dropout, .form = form, .gradient = gradient, .in_place = in_place, .tasks = kTasks};
}

}  // namespace overtake
