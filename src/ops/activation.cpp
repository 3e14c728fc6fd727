// y = function(x), elementwise
// forward:    reads x            writes y
// input_grad: reads x?, y?, dy   writes dx      (of x and y the one that the function's derivative needs)
// attributes: function: relu, gelu, gelu_tanh, silu, sigmoid, tanh, hard_swish, hard_sigmoid, exp, log, sqrt,
//                       reciprocal, erf, abs, softplus, mish, leaky_relu, elu, maximum, clip
//             alpha: leaky_relu: the slope below 0; elu: what it falls to, times -1; maximum: what x is compared with;
//             where both are equal the derivative is 1/2, as of torch.maximum
//             min, max: clip: the bounds; an absent one is none. At a bound the derivative is 0, as of torch.clamp

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/rules.h"
#include "ops/task_operands.h"

namespace overtake {
namespace {

constexpr std::string_view kFunctions[] = {
    "relu", "gelu",       "gelu_tanh", "silu", "sigmoid",  "tanh", "hard_swish", "hard_sigmoid", "exp",     "log",
    "sqrt", "reciprocal", "erf",       "abs",  "softplus", "mish", "leaky_relu", "elu",          "maximum", "clip"};

void check_parameters(const std::string& function, const Attrs& attrs) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (function == "leaky_relu" || function == "elu" || function == "maximum") {
    if (!attrs.has("alpha")) fail_shape("{} needs the attribute alpha", function);
    if (!std::isfinite(attrs.real("alpha"))) fail_shape("{} with alpha {}", function, attrs.real("alpha"));
  } else if (function == "clip") {
    const double low = attrs.real("min", -kInfinity), high = attrs.real("max", kInfinity);
    if (!(low <= high)) fail_shape("clip from {} to {}; the first must not be larger", low, high);
  }
}

OpForm form(std::span<const TensorType> inputs, const Attrs& attrs) {
  const std::string& function = attrs.text("function");
  if (std::ranges::find(kFunctions, function) == std::end(kFunctions))
    fail_shape("unknown function '{}'; known are {}", function, fmt::join(kFunctions, ", "));
  check_parameters(function, attrs);
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

void check_gradient(const TaskOperands& t) {
  const char* needed = derivative_uses_output(t.attrs().text("function")) ? "y" : "x";
  if (t.read(needed) == nullptr) t.fail(needed, kNone, "what the derivative is computed from");
  t.expect_form();
}

constexpr TaskRule kTasks[] = {{kForward, "x -> y"}, {kGradient, "x? y? dy -> dx", check_gradient}};

}  // namespace

bool derivative_uses_output(std::string_view function) {
  constexpr std::string_view kFromOutput[] = {"relu", "sigmoid", "tanh", "exp", "sqrt", "reciprocal"};
  return std::ranges::find(kFromOutput, function) != std::end(kFromOutput);
}

bool linear_takes(std::string_view function) {
  constexpr auto kTaken = std::span(kFunctions).first(8);  // relu to hard_sigmoid
  return std::ranges::find(kTaken, function) != kTaken.end();
}

OpTraits activation_traits() {
  return {.op = Op::activation, .form = form, .gradient = gradient, .in_place = in_place, .tasks = kTasks};
}

}  // namespace overtake
