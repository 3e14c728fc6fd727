// metrics[3] = mean of (x - target)^2 over all elements, rows, 0
// forward: reads x, target   writes metrics;   input_grad: reads x, target   writes dx
// attributes: scale (of the gradient; absent: 1)

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs&) {
  if (inputs[0].shape != inputs[1].shape)
    fail_shape("prediction {} and target {} differ", to_string(inputs[0].shape), to_string(inputs[1].shape));
  return {.parameters = {}, .outputs = {{"metrics", {3}, DType::f32, Role::output}}};
}

void gradient(Gradient& g) { g.emit(Kind::input_grad, {g.in(0), g.in(1)}, {g.grad_in(0)}); }

std::vector<InPlace> in_place(const Task& t) {
  if (t.kind == Kind::input_grad) return {{0, 0}};
  return {};
}

constexpr TaskRule kTasks[] = {{kForward, "x target -> metrics!"}, {kGradient, "x target -> dx"}};

}  // namespace

OpTraits mse_traits() {
  return {.op = Op::mse, .form = form, .gradient = gradient, .in_place = in_place, .tasks = kTasks};
}

}  // namespace overtake
