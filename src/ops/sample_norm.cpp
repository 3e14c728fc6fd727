// Norms whose statistics stay within a sample: layer norm (per row, over the last dimension) and group norm (per sample
// and group of channels): y = gamma * (x - mean) * rstd + beta
// forward:     reads x, gamma, beta, residual?         writes y, mean, rstd ([rows], or [N, groups]), sum?
// input_grad:  reads x, dy, mean, rstd, gamma, around?  writes dx
// weight_grad: reads x, dy, mean, rstd                  writes dgamma?, dbeta?      (those that are trained)
// attributes:  eps, groups (group norm)
// residual (layer norm only): the norm is that of sum = x + residual, which others may read as well; the gradients then
// read the sum for x, and `around` is the gradient that reaches it from those others.

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form_of(const TensorType& x, const Shape& width, const Shape& statistics) {
  OpForm f;
  f.parameters = {{"weight", width, Role::weight, {Init::Kind::ones}}, {"bias", width, Role::weight, {}}};
  f.outputs = {{"", x.shape, x.dtype}, {"mean", statistics}, {"rstd", statistics}};
  return f;
}

OpForm layer_form(std::span<const TensorType> inputs, const Attrs&) {
  const Shape& x = inputs[0].shape;
  if (x.rank < 2) fail_shape("the input needs two dimensions or more, but is {}", to_string(x));
  return form_of(inputs[0], {x.back()}, {x.elements() / x.back()});
}

OpForm group_form(std::span<const TensorType> inputs, const Attrs& attrs) {
  expect_rank(inputs[0], 4, "the input");
  const std::int64_t groups = attrs.integer("groups"), channels = inputs[0].shape[1];
  if (groups < 1 || channels % groups != 0) fail_shape("{} channels do not divide into {} groups", channels, groups);
  return form_of(inputs[0], {channels}, {inputs[0].shape[0], groups});
}

void gradient_of_sum(Gradient& g) {
  const BufferId sum = g.out(3), dy = g.grad_out(0), around = g.grad_out(3), mean = g.out(1), rstd = g.out(2);
  const Buffer like = g.graph().buffers[sum];
  BufferId dsum = around;
  if (dy != kNone && (g.wants(0) || g.wants(3))) {
    dsum = g.temporary("sum.grad", like.shape, like.dtype);
    g.emit(Kind::input_grad, {sum, dy, mean, rstd, g.in(1), around}, {dsum});
  }
  for (const std::size_t i : {0u, 3u})
    if (g.wants(i)) g.pass(i, dsum);
  if (dy != kNone && (g.wants(1) || g.wants(2)))
    g.emit(Kind::weight_grad, {sum, dy, mean, rstd}, {g.grad_in(1), g.grad_in(2)});
}

void gradient(Gradient& g) {
  if (g.forward().reads > 3) return gradient_of_sum(g);
  const BufferId x = g.in(0), dy = g.grad_out(0), mean = g.out(1), rstd = g.out(2);
  if (g.wants(0)) g.emit(Kind::input_grad, {x, dy, mean, rstd, g.in(1)}, {g.grad_in(0)});
  if (g.wants(1) || g.wants(2)) g.emit(Kind::weight_grad, {x, dy, mean, rstd}, {g.grad_in(1), g.grad_in(2)});
}

std::vector<InPlace> in_place(const Task& t) {
  if (t.kind == Kind::input_grad)
    return t.reads > 5 ? std::vector<InPlace>{{1, 0}, {5, 0}} : std::vector<InPlace>{{1, 0}};
  if (t.kind == Kind::forward && t.reads > 3) return {{0, 3}, {3, 3}};  // the sum over what is added
  return {};
}

constexpr TaskRule kLayerTasks[] = {{kForward, "x, gamma beta residual:x? -> y mean! rstd! sum:x?"},
                                    {kInputGrad, "x dy mean! rstd! gamma around:x? -> dx"},
                                    {kWeightGrad, "x dy mean! rstd! -> dgamma? dbeta?"}};
constexpr TaskRule kGroupTasks[] = {{kForward, "x, gamma beta -> y mean! rstd!"},
                                    {kInputGrad, "x dy mean! rstd! gamma -> dx"},
                                    {kWeightGrad, "x dy mean! rstd! -> dgamma? dbeta?"}};

}  // namespace

OpTraits layer_norm_traits() {
  return {.op = Op::layer_norm, .form = layer_form, .gradient = gradient, .in_place = in_place, .tasks = kLayerTasks};
}
OpTraits group_norm_traits() {
  return {.op = Op::group_norm, .form = group_form, .gradient = gradient, .in_place = in_place, .tasks = kGroupTasks};
}

}  // namespace overtake
