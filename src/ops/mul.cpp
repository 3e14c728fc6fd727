// y = a * b with numpy's broadcasting
// forward:    reads a, b         writes y
// input_grad: reads dy, other    writes da      (dy * other, summed over the dimensions in which a was broadcast)

#include "ops/broadcast.h"

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs&) {
  return {.parameters = {}, .outputs = {{"", broadcast(inputs[0].shape, inputs[1].shape), inputs[0].dtype}}};
}

void gradient(Gradient& g) {
  for (const std::size_t i : {0u, 1u})
    if (g.wants(i)) g.emit(Kind::input_grad, {g.grad_out(0), g.in(1 - i)}, {g.grad_in(i)});
}

std::vector<InPlace> in_place(const Task& t) {
  if (t.kind == Kind::forward) return {{0, 0}, {1, 0}};
  return {};
}

constexpr TaskRule kTasks[] = {{kForward, "a b -> y"}, {kGradient, "dy b -> da"}};

}  // namespace

OpTraits mul_traits() {
  return {.op = Op::mul, .form = form, .gradient = gradient, .in_place = in_place, .tasks = kTasks};
}

}  // namespace overtake
