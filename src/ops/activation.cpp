// y = function(x), elementwise
// forward:    reads x            writes y
// input_grad: reads x?, y?, dy   writes dx      (of x and y the one that the function's derivative needs)
// attributes: function (relu, gelu, gelu_tanh, silu, sigmoid, tanh, hard_swish, hard_sigmoid)

#include <fmt/ranges.h>

#include <algorithm>

#include "ops/rules.h"

namespace overtake {
namespace {

constexpr std::string_view kFunctions[] = {"relu",    "gelu", "gelu_tanh",  "silu",
                                           "sigmoid", "tanh", "hard_swish", "hard_sigmoid"};

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const std::string& function = attrs.text("function");
  if (std::ranges::find(kFunctions, function) == std::end(kFunctions))
    fail_shape("unknown function '{}'; known are {}", function, fmt::join(kFunctions, ", "));
  return {.parameters = {}, .outputs = {{"", inputs[0].shape, inputs[0].dtype}}};
}

void gradient(Gradient& g) {
  const bool from_output = derivative_uses_output(g.graph().attrs_of(g.forward()).text("function"));
  g.emit(Kind::input_grad, {from_output ? kNone : g.in(0), from_output ? g.out(0) : kNone, g.grad_out(0)},
         {g.grad_in(0)});
}

std::vector<InPlace> in_place(const Task& t) {
  if (t.kind == Kind::forward) return {{0, 0}};
  return {{2, 0}, {0, 0}, {1, 0}};
}

}  // namespace

bool derivative_uses_output(std::string_view function) {
  return function == "relu" || function == "sigmoid" || function == "tanh";
}

OpTraits activation_traits() {
  return {.op = Op::activation, .form = form, .gradient = gradient, .in_place = in_place};
}

}  // namespace overtake
