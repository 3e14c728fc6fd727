// y = x from begin (inclusive) to end (exclusive) along an axis
// forward:    reads x    writes y
// input_grad: reads dy   writes dx      (zero outside)
// attributes: axis, begin, end

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  Shape y = inputs[0].shape;
  const auto axis = static_cast<std::size_t>(attrs.integer("axis"));
  const std::int64_t begin = attrs.integer("begin"), end = attrs.integer("end");
  if (axis >= y.rank || begin < 0 || begin >= end || end > y[axis])
    fail_shape("{} to {} of axis {} of an input {}", begin, end, axis, to_string(y));
  y[axis] = end - begin;
  return {.parameters = {}, .outputs = {{"", y, inputs[0].dtype}}};
}

void gradient(Gradient& g) { g.emit(Kind::input_grad, {g.grad_out(0)}, {g.grad_in(0)}); }

constexpr TaskRule kTasks[] = {{kForward, "x# -> y"}, {kGradient, "dy -> dx"}};

}  // namespace

OpTraits slice_traits() { return {.op = Op::slice, .form = form, .gradient = gradient, .tasks = kTasks}; }

}  // namespace overtake
