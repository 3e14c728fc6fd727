// y = gamma * (x - mean) * rstd + beta, statistics per sample and group of channels
// forward:     reads x, gamma, beta              writes y, mean [N, groups], rstd [N, groups]
// input_grad:  reads x, dy, mean, rstd, gamma    writes dx
// weight_grad: reads x, dy, mean, rstd           writes dgamma, dbeta
// attributes:  eps, groups

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const TensorType& x = inputs[0];
  expect_rank(x, 4, "the input");
  const std::int64_t groups = attrs.integer("groups");
  if (groups < 1 || x.shape[1] % groups != 0)
    fail_shape("{} channels do not divide into {} groups", x.shape[1], groups);
  const Shape width = {x.shape[1]}, rows = {x.shape[0], groups};
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

OpTraits group_norm_traits() {
  return {.op = Op::group_norm, .form = form, .gradient = gradient, .in_place = in_place};
}

}  // namespace overtake
