// y = x with other dimensions; a view, both on the same bytes, wherever the planner can make it one
// forward: reads x   writes y;   input_grad: reads dy   writes dx
// attributes: shape (one entry may be -1)

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  Shape y(attrs.integers("shape"));
  std::int64_t known = 1, open = -1;
  for (std::size_t i = 0; i < y.rank; ++i) {
    if (y[i] == -1 && open < 0)
      open = static_cast<std::int64_t>(i);
    else
      known *= y[i];
  }
  if (open >= 0 && known > 0) y[static_cast<std::size_t>(open)] = x.elements() / known;
  if (y.elements() != x.elements()) fail_shape("{} cannot become {}", to_string(x), to_string(y));
  return {.parameters = {}, .outputs = {{"", y, inputs[0].dtype}}};
}

void gradient(Gradient& g) { g.emit(Kind::input_grad, {g.grad_out(0)}, {g.grad_in(0)}); }

std::vector<InPlace> in_place(const Task&) { return {{0, 0}}; }

double flops(const Graph&, const Task&) { return 0; }

constexpr TaskRule kTasks[] = {{kForward, "x# -> y"}, {kGradient, "dy -> dx"}};

}  // namespace

OpTraits reshape_traits() {
  return {.op = Op::reshape, .form = form, .gradient = gradient, .flops = flops, .in_place = in_place, .tasks = kTasks};
}

}  // namespace overtake
