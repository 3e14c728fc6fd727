// y = the inputs side by side along an axis
// forward:    reads x0, x1, ...   writes y
// input_grad: reads dy            writes dx0?, dx1?, ...
// attributes: axis, extents (input_grad only: of the inputs along the axis)

#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const auto axis = static_cast<std::size_t>(attrs.integer("axis"));
  Shape y = inputs[0].shape;
  if (axis >= y.rank) fail_shape("axis {} of an input {}", axis, to_string(y));
  for (const TensorType& x : inputs.subspan(1)) {
    Shape same = x.shape;
    if (same.rank == y.rank) same[axis] = y[axis];
    if (same != y || x.dtype != inputs[0].dtype)
      fail_shape("inputs {} and {} differ in more than axis {}", to_string(inputs[0].shape), to_string(x.shape), axis);
    y[axis] += x.shape[axis];
  }
  return {.parameters = {}, .outputs = {{"", y, inputs[0].dtype}}};
}

void gradient(Gradient& g) {
  Attrs attrs = g.graph().attrs_of(g.forward());
  const auto axis = static_cast<std::size_t>(attrs.integer("axis"));
  std::vector<BufferId> writes;
  std::vector<std::int64_t> extents;
  for (std::size_t i = 0; i < g.forward().reads; ++i) {
    extents.push_back(g.graph().buffers[g.in(i)].shape[axis]);
    writes.push_back(g.grad_in(i));
  }
  attrs.set("extents", extents);
  const BufferId dy = g.grad_out(0);
  g.emit(Kind::input_grad, Op::concat, attrs, {&dy, 1}, writes);
}

void check_gradient(const TaskOperands& t) {
  const auto axis = static_cast<std::size_t>(t.attrs().integer("axis"));
  const std::vector<std::int64_t>& extents = t.attrs().integers("extents");
  const Shape dy = t.read("dy")->shape;
  if (extents.size() != t.write_groups())
    t.fail(fmt::format("{} extents for {} parts", extents.size(), t.write_groups()));
  t.expect_float("dy");
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    Shape part = dy;
    if (axis >= part.rank) t.fail("dy", t.read_id("dy"), fmt::format("one with an axis {}", axis));
    part[axis] = extents[i];
    t.expect_shape("dx", part, i);
    t.expect_float("dx", i);
    sum += extents[i];
  }
  if (sum != dy[axis]) t.fail("dy", t.read_id("dy"), fmt::format("{} along axis {}", sum, axis));
}

constexpr TaskRule kTasks[] = {{kForward, "x# ... -> y"}, {kGradient, "dy -> dx? ...", check_gradient}};

}  // namespace

OpTraits concat_traits() { return {.op = Op::concat, .form = form, .gradient = gradient, .tasks = kTasks}; }

}  // namespace overtake
