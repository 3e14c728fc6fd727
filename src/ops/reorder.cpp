// y = x in another layout or element type
// any kind: reads x   writes y

#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

void gradient(Gradient& g) { g.emit(Kind::input_grad, {g.grad_out(0)}, {g.grad_in(0)}); }

void check(const TaskOperands& t) {
  t.expect_shape("y", t.read("x")->shape);
  if (is_float(t.read("x")->dtype))
    t.expect_float("y");
  else
    t.expect_type("y", t.read("x")->dtype);
}

constexpr TaskRule kTasks[] = {{kForwardOrGradient, "x -> y", check}};

}  // namespace

OpTraits reorder_traits() { return {.op = Op::reorder, .gradient = gradient, .tasks = kTasks}; }

}  // namespace overtake
