// y = gamma * (x - mean) * rstd + beta, statistics per row over the last dimension
// forward:     reads x, gamma, beta              writes y, mean, rstd
// input_grad:  reads x, dy, mean, rstd, gamma    writes dx
// weight_grad: reads x, dy, mean, rstd           writes dgamma, dbeta
// attributes:  eps

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  (void)attrs;
  const TensorType& x = inputs[0];
  if (x.shape.rank < 2) fail_shape("the input needs two dimensions or more, but is {}", to_string(x.shape));
  const Shape width = {x.shape.back()}, rows = {x.shape.elements() / x.shape.back()};
  OpForm f;
  f.parameters = {{"weight", width, Role::weight, {Init::Kind::ones}}, {"bias", width, Role::weight, {}}};
  f.outputs = {{"", x.shape, x.dtype}, {"mean", rows}, {"rstd", rows}};
  return f;
}

void gradient(Gradient& g) {
  const BufferId x = g.in(0), dy = g.grad_out(0), mean = g.out(1), rstd = g.out(2);
  if (g.wants(0)) g.emit(Kind::input_grad, {x, dy, mean, rstd, g.in(1)}, {g.grad_in(0)});
  g.emit(Kind::weight_grad, {x, dy, mean, rstd}, {g.grad_in(1), g.grad_in(2)});
}

std::vector<InPlace> in_place(const Task& t) {
  if (t.kind == Kind::input_grad) return {{1, 0}};
  return {};
}

}  // namespace

OpTraits layer_norm_traits() {
  return {.op = Op::layer_norm, .form = form, .gradient = gradient, .in_place = in_place};
}

}  // namespace overtake
