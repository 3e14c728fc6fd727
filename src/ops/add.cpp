// y = a + b with numpy's broadcasting
// forward:    reads a, b   writes y
// input_grad: reads dy     writes da      (only where a was broadcast: dy summed over those dimensions)

#include "ops/broadcast.h"

#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs&) {
  return {.parameters = {}, .outputs = {{"", broadcast(inputs[0].shape, inputs[1].shape), inputs[0].dtype}}};
}

void gradient(Gradient& g) {
  const BufferId dy = g.grad_out(0);
  for (const std::size_t i : {0u, 1u}) {
    if (!g.wants(i)) continue;
    if (g.graph().buffers[g.in(i)].shape == g.graph().buffers[dy].shape)
      g.pass(i, dy);
    else
      g.emit(Kind::input_grad, {dy}, {g.grad_in(i)});
  }
}

std::vector<InPlace> in_place(const Task& t) {
  if (t.kind == Kind::forward) return {{0, 0}, {1, 0}};
  return {};
}

void check_gradient(const TaskOperands& t) {
  t.expect_float("dy");
  t.expect_float("da");
  if (const Shape& dy = t.read("dy")->shape; broadcast(t.written("da")->shape, dy) != dy)
    t.fail("da", t.write_id("da"), fmt::format("one that stretches to {}", to_string(dy)));
}

constexpr TaskRule kTasks[] = {{kForward, "a b -> y"}, {kGradient, "dy -> da:any", check_gradient}};

}  // namespace

OpTraits add_traits() {
  return {.op = Op::add, .form = form, .gradient = gradient, .in_place = in_place, .tasks = kTasks};
}

}  // namespace overtake
