// y[..., out] = function(x[..., in] w[out, in]^T + bias[out])
// forward:     reads x, w, bias?   writes y, pre (only where the function's derivative needs it)
// input_grad:  reads dz, w, pre?   writes dx      (pre: dx is multiplied by the derivative of the function below there)
// weight_grad: reads x, dz, add?   writes dw?, dbias?      (those that are trained; add: another dw, of dw's type)
// attributes:  out, bias (0 or 1), function (absent: none; see linear_takes), derivative (of which function, with pre)

#include <cmath>

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const TensorType& x = inputs[0];
  if (x.shape.rank < 1) fail_shape("the input needs at least one dimension, but is {}", to_string(x.shape));
  const std::int64_t in = x.shape.back(), out = attrs.integer("out");
  if (out < 1) fail_shape("{} output features; at least one is needed", out);
  if (attrs.has("function") && !linear_takes(attrs.text("function")))
    fail_shape("the function '{}' has to be an activation of its own", attrs.text("function"));
  Shape y = x.shape;
  y[y.rank - 1u] = out;
  const Init init{Init::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(in))};
  OpForm f;
  f.parameters.push_back({"weight", {out, in}, Role::weight, init});
  f.parameters.push_back({attrs.integer("bias", 1) != 0 ? "bias" : "", {out}, Role::weight, init});
  f.outputs.push_back({"", y, x.dtype});
  if (attrs.has("function") && !derivative_uses_output(attrs.text("function")))
    f.outputs.push_back({"pre", y, x.dtype});
  return f;
}

void gradient(Gradient& g) {
  BufferId dz = g.grad_out(0);
  const Attrs attrs = g.graph().attrs_of(g.forward());
  if (attrs.has("function")) {
    const bool from_output = derivative_uses_output(attrs.text("function"));
    const BufferId reads[] = {from_output ? kNone : g.out(1), from_output ? g.out(0) : kNone, dz};
    const Buffer& y = g.graph().buffers[g.out(0)];
    dz = g.temporary("pre.grad", Shape(y.shape), y.dtype);
    g.emit(Kind::input_grad, Op::activation, Attrs{{"function", attrs.text("function")}}, reads, {&dz, 1});
  }
  if (g.wants(0)) g.emit(Kind::input_grad, {dz, g.in(1)}, {g.grad_in(0)});
  if (g.wants(1) || g.wants(2)) g.emit(Kind::weight_grad, {g.in(0), dz}, {g.grad_in(1), g.grad_in(2)});
}

double flops(const Graph& g, const Task& t) {
  // Every one of the three is a product over rows, in and out.
  const bool is_weight_grad = t.kind == Kind::weight_grad;
  const Shape& rows = g.buffers[g.reads(t)[is_weight_grad ? 1 : 0]].shape;
  if (is_weight_grad && g.writes(t)[0] == kNone) return static_cast<double>(rows.elements());  // the bias alone
  const Shape& w = g.buffers[is_weight_grad ? g.writes(t)[0] : g.reads(t)[1]].shape;
  return 2.0 * static_cast<double>(rows.elements() / rows.back()) * static_cast<double>(w.elements());
}

std::vector<InPlace> in_place(const Task& t) {
  if (t.kind != Kind::weight_grad || t.reads < 3) return {};
  return {{.read = 2, .write = 0}};
}

constexpr TaskRule kTasks[] = {
    {kForward, "x, w bias? -> y pre?"}, {kInputGrad, "dy w pre:x? -> dx"}, {kWeightGrad, "x dy add:w? -> dw? dbias?"}};

}  // namespace

OpTraits linear_traits() {
  return {.op = Op::linear, .form = form, .gradient = gradient, .flops = flops, .in_place = in_place, .tasks = kTasks};
}

}  // namespace overtake
