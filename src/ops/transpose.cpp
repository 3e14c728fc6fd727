// dimension i of y is dimension order[i] of x
// forward: reads x   writes y;   input_grad: reads dy   writes dx (with the inverse order)
// attributes: order

#include <fmt/ranges.h>

#include <algorithm>

#include "ops/rules.h"

namespace overtake {
namespace {

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const Shape& x = inputs[0].shape;
  const auto& order = integers_of(attrs, "order", x.rank);
  std::vector<std::int64_t> sorted = order;
  std::ranges::sort(sorted);
  Shape y = x;
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<std::int64_t>(i))
      fail_shape("order {} is no permutation of the dimensions of {}", fmt::join(order, ","), to_string(x));
  for (std::size_t i = 0; i < order.size(); ++i) y[i] = x[static_cast<std::size_t>(order[i])];
  return {.parameters = {}, .outputs = {{"", y, inputs[0].dtype}}};
}

void gradient(Gradient& g) {
  const auto order = g.graph().attrs_of(g.forward()).integers("order");
  std::vector<std::int64_t> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  const BufferId dy = g.grad_out(0), dx = g.grad_in(0);
  g.emit(Kind::input_grad, Op::transpose, Attrs{{"order", inverse}}, {&dy, 1}, {&dx, 1});
}

constexpr TaskRule kTasks[] = {{kForwardOrGradient, "x# -> y"}};

}  // namespace

OpTraits transpose_traits() { return {.op = Op::transpose, .form = form, .gradient = gradient, .tasks = kTasks}; }

}  // namespace overtake
