// Stretching and summing over axes, each the gradient of the other.
// expand: y = scale * x stretched to a shape      any kind: reads x   writes y
//   attributes: shape, scale (absent: 1), axes (absent: numpy's broadcast_to; else the axes of y that x lacks,
//   ascending;
//               all its other dimensions are those of y, and an x that lacks all of them is [1])
// reduce: y = scale * sum of x over axes          any kind: reads x   writes y (the axes are gone; [1] if none is left)
//   attributes: axes (ascending), scale (absent: 1)

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/broadcast.h"
#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

void check_operand(const TensorType& x, const Attrs& attrs) {
  if (x.dtype != DType::f32) fail_shape("elements of type {}; only f32 is possible", to_string(x.dtype));
  if (const double scale = attrs.real("scale", 1.0); !std::isfinite(scale)) fail_shape("a scale of {}", scale);
}

// What is left of a shape without these axes.
Shape without(const Shape& x, const std::vector<std::int64_t>& axes) {
  Shape y;
  for (std::size_t i = 0; i < x.rank; ++i)
    if (std::ranges::find(axes, static_cast<std::int64_t>(i)) == axes.end()) y.dims[y.rank++] = x[i];
  return y.rank == 0 ? Shape{1} : y;
}

void check_axes(const std::vector<std::int64_t>& axes, const Shape& of) {
  const bool is_ascending = std::ranges::adjacent_find(axes, std::greater_equal<>()) == axes.end();
  if (!is_ascending || (!axes.empty() && (axes.front() < 0 || axes.back() >= of.rank)))
    fail_shape("axes [{}] of a tensor {}; they must ascend from 0 to {}", fmt::join(axes, ", "), to_string(of),
               of.rank - 1);
}

OpForm expand_form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  check_operand(inputs[0], attrs);
  const std::vector<std::int64_t>& dims = attrs.integers("shape");
  if (dims.size() > Shape::kMaxRank || std::ranges::any_of(dims, [](std::int64_t d) { return d < 1; }))
    fail_shape("a shape of [{}]; at most {} dimensions, each 1 or more", fmt::join(dims, ", "), Shape::kMaxRank);
  const Shape y{std::span(dims)};
  if (attrs.has("axes")) {
    check_axes(attrs.integers("axes"), y);
    if (x != without(y, attrs.integers("axes")))
      fail_shape("an input {} is not {} without axes [{}]", to_string(x), to_string(y),
                 fmt::join(attrs.integers("axes"), ", "));
  } else if (x.rank > y.rank || broadcast(x, y) != y) {
    fail_shape("an input {} does not stretch to {}", to_string(x), to_string(y));
  }
  return {.parameters = {}, .outputs = {{"", y, inputs[0].dtype}}};
}

OpForm reduce_form(std::span<const TensorType> inputs, const Attrs& attrs) {
  check_operand(inputs[0], attrs);
  check_axes(attrs.integers("axes"), inputs[0].shape);
  return {.parameters = {}, .outputs = {{"", without(inputs[0].shape, attrs.integers("axes")), inputs[0].dtype}}};
}

void expand_gradient(Gradient& g) {
  const Attrs& attrs = g.graph().attrs_of(g.forward());
  const double scale = attrs.real("scale", 1.0);
  const BufferId dy = g.grad_out(0);
  const Shape x = g.graph().buffers[g.in(0)].shape, y = g.graph().buffers[g.out(0)].shape;
  if (x == y && scale == 1.0) return g.pass(0, dy);
  const Attrs sum{{"axes", stretched_axes(attrs, x, y)}, {"scale", scale}};
  const BufferId dx = g.grad_in(0);
  g.emit(Kind::input_grad, Op::reduce, sum, {&dy, 1}, {&dx, 1});
}

void reduce_gradient(Gradient& g) {
  const Attrs& attrs = g.graph().attrs_of(g.forward());
  const auto x = g.graph().buffers[g.in(0)].shape.span();
  const Attrs stretch{{"shape", std::vector<std::int64_t>(x.begin(), x.end())},
                      {"axes", attrs.integers("axes")},
                      {"scale", attrs.real("scale", 1.0)}};
  const BufferId dy = g.grad_out(0), dx = g.grad_in(0);
  g.emit(Kind::input_grad, Op::expand, stretch, {&dy, 1}, {&dx, 1});
}

double reduce_flops(const Graph& g, const Task& t) {
  return static_cast<double>(g.buffers[g.reads(t)[0]].shape.elements());
}

// The gradient of an expand keeps the dimensions of 1 that were stretched.
void check_reduced(const TaskOperands& t) {
  t.expect_float("x");
  t.expect_float("y");
  const TensorType x{t.read("x")->shape, DType::f32, true};
  const OpForm form = reduce_form(std::span(&x, 1), t.attrs());
  const auto without_ones = [](const Shape& shape) {
    std::vector<std::int64_t> dims(shape.span().begin(), shape.span().end());
    std::erase(dims, 1);
    return dims;
  };
  if (without_ones(t.written("y")->shape) != without_ones(form.outputs[0].shape))
    t.fail("y", t.write_id("y"), fmt::format("{}, but for dimensions of 1", to_string(form.outputs[0].shape)));
}

constexpr TaskRule kExpandTasks[] = {{kForwardOrGradient, "x -> y"}};
constexpr TaskRule kReduceTasks[] = {{kForward, "x -> y"}, {kGradient, "x -> y", check_reduced}};

}  // namespace

std::vector<std::int64_t> stretched_axes(const Attrs& attrs, const Shape& from, const Shape& to) {
  if (attrs.has("axes")) return attrs.integers("axes");
  std::vector<std::int64_t> axes;
  const std::size_t missing = static_cast<std::size_t>(to.rank) - from.rank;
  for (std::size_t i = 0; i < to.rank; ++i)
    if (i < missing || from[i - missing] != to[i]) axes.push_back(static_cast<std::int64_t>(i));
  return axes;
}

OpTraits expand_traits() {
  return {.op = Op::expand, .form = expand_form, .gradient = expand_gradient, .tasks = kExpandTasks};
}
OpTraits reduce_traits() {
  return {
      .op = Op::reduce, .form = reduce_form, .gradient = reduce_gradient, .flops = reduce_flops, .tasks = kReduceTasks};
}

}  // namespace overtake
