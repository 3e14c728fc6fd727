// y[N, O, H', W'] = x[N, C, H, W] * w[O, C / groups, kh, kw] + bias[O]; with groups > 1, w is [G, O / G, C / G, kh, kw]
// forward:     reads x, w, bias?   writes y
// input_grad:  reads dy, w         writes dx
// weight_grad: reads x, dy         writes dw?, dbias?      (those that are trained)
// attributes:  out, kernel [2], stride [2], padding [4: top, left, bottom, right], dilation [2], groups, bias

#include "ops/conv2d.h"

#include <cmath>

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const TensorType& x = inputs[0];
  expect_rank(x, 4, "the input");
  const auto &kernel = integers_of(attrs, "kernel", 2), &stride = integers_of(attrs, "stride", 2),
             &padding = integers_of(attrs, "padding", 4), &dilation = integers_of(attrs, "dilation", 2);
  const std::int64_t out = attrs.integer("out"), groups = attrs.integer("groups"), in = x.shape[1];
  if (groups < 1 || in % groups != 0 || out % groups != 0 || out < 1)
    fail_shape("{} input and {} output channels do not divide into {} groups", in, out, groups);
  Shape y = {x.shape[0], out, 0, 0};
  for (std::size_t d = 0; d < 2; ++d) {
    if (kernel[d] < 1 || stride[d] < 1 || dilation[d] < 1 || padding[d] < 0 || padding[d + 2] < 0)
      fail_shape("kernel {}, stride {}, dilation {}, padding {} and {} in dimension {}", kernel[d], stride[d],
                 dilation[d], padding[d], padding[d + 2], d);
    const std::int64_t room = x.shape[d + 2] + padding[d] + padding[d + 2] - (dilation[d] * (kernel[d] - 1) + 1);
    if (room < 0) fail_shape("a kernel of {} is larger than the padded input {}", kernel[d], to_string(x.shape));
    y[d + 2] = room / stride[d] + 1;
  }
  const std::int64_t in_per_group = in / groups;
  const Shape w = groups == 1 ? Shape{out, in, kernel[0], kernel[1]}
                              : Shape{groups, out / groups, in_per_group, kernel[0], kernel[1]};
  const auto fan_in = static_cast<double>(in_per_group * kernel[0] * kernel[1]);
  const Init init{Init::Kind::uniform, 1.0 / std::sqrt(fan_in)};
  OpForm f;
  f.parameters.push_back({"weight", w, Role::weight, init});
  f.parameters.push_back({attrs.integer("bias", 1) != 0 ? "bias" : "", {out}, Role::weight, init});
  f.outputs.push_back({"", y, x.dtype});
  return f;
}

void gradient(Gradient& g) {
  const BufferId dy = g.grad_out(0);
  if (g.wants(0)) g.emit(Kind::input_grad, {dy, g.in(1)}, {g.grad_in(0)});
  if (g.wants(1) || g.wants(2)) g.emit(Kind::weight_grad, {g.in(0), dy}, {g.grad_in(1), g.grad_in(2)});
}

double flops(const Graph& g, const Task& t) {
  const bool is_weight_grad = t.kind == Kind::weight_grad;
  const BufferId y = t.kind == Kind::forward ? g.writes(t)[0] : g.reads(t)[is_weight_grad ? 1 : 0];
  const Shape& out = g.buffers[y].shape;                                                      // [N, O, H', W']
  if (is_weight_grad && g.writes(t)[0] == kNone) return static_cast<double>(out.elements());  // the bias alone
  const Shape& w = g.buffers[is_weight_grad ? g.writes(t)[0] : g.reads(t)[1]].shape;
  const double per_output = static_cast<double>(w.elements()) / static_cast<double>(out[1]);
  return 2.0 * static_cast<double>(out.elements()) * per_output;
}

constexpr TaskRule kTasks[] = {
    {kForward, "x, w bias? -> y"}, {kInputGrad, "dy w -> dx"}, {kWeightGrad, "x dy -> dw? dbias?"}};

}  // namespace

OpTraits conv2d_traits() {
  return {.op = Op::conv2d, .form = form, .gradient = gradient, .flops = flops, .tasks = kTasks};
}

ConvOperands conv_operands(const Graph& g, const Task& t) {
  const auto read = [&](std::size_t i) { return &g.buffers[g.reads(t)[i]]; };
  const auto write = [&](std::size_t i) { return &g.buffers[g.writes(t)[i]]; };
  switch (t.kind) {
    case Kind::forward:
      return {read(0), write(0), read(1), g.reads(t)[2] != kNone};
    case Kind::input_grad:
      return {write(0), read(0), read(1), false};
    default:
      return {read(0), read(1), g.writes(t)[0] == kNone ? nullptr : write(0), g.writes(t)[1] != kNone};
  }
}

bool is_depthwise(const Graph& g, const Task& t) {
  const ConvOperands o = conv_operands(g, t);
  const std::int64_t groups = g.attrs_of(t).integer("groups");
  return groups > 1 && groups == o.x->shape[1] && groups == o.y->shape[1];
}

}  // namespace overtake
