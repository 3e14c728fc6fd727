// Activation functions from their formulas.

#include <cmath>
#include <numbers>

#include "passes/recognise_rules.h"
#include "rewrite/pattern.h"

namespace overtake {
namespace {

// b = scale * x^power
bool is_monomial(const Rewriter& g, BufferId b, double scale, BufferId x, std::size_t power, MatchedTasks& group) {
  const Product p = product_of(g, b, group);
  return is_close(p.scale, scale) && p.factors == std::vector<BufferId>(power, x);
}

// b = 1 + erf(x / sqrt(2))
bool is_gelu_gate(const Rewriter& g, BufferId b, BufferId x, MatchedTasks& group) {
  const auto sum = plus_scalar(g, b, group);
  if (!sum || !is_close(sum->value, 1)) return false;
  const BufferId inner = argument_of(g, sum->x, "erf", group);
  return inner != kNone && is_monomial(g, inner, 1 / std::numbers::sqrt2, x, 1, group);
}

// b = x + 0.044715 x^3
bool is_cubic(const Rewriter& g, BufferId b, BufferId x, MatchedTasks& group) {
  const TaskId t = g.writer(b, Op::add);
  if (t == kNone || (g.in(t, 0) != x && g.in(t, 1) != x)) return false;
  group.push_back(t);
  return is_monomial(g, other_operand(g, t, x), 0.044715, x, 3, group);
}

// b = 1 + 0.044715 x^2
bool is_square(const Rewriter& g, BufferId b, MatchedTasks& group, BufferId x) {
  const auto sum = plus_scalar(g, b, group);
  return sum && is_close(sum->value, 1) && is_monomial(g, sum->x, 0.044715, x, 2, group);
}

// b = 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))
bool is_gelu_tanh_gate(const Rewriter& g, BufferId b, BufferId x, MatchedTasks& group) {
  const auto sum = plus_scalar(g, b, group);
  if (!sum || !is_close(sum->value, 1)) return false;
  const BufferId inner = argument_of(g, sum->x, "tanh", group);
  if (inner == kNone) return false;
  const Product p = product_of(g, inner, group);
  if (!is_close(p.scale, std::sqrt(2 / std::numbers::pi))) return false;
  if (p.factors.size() == 1) return is_cubic(g, p.factors[0], x, group);
  if (p.factors.size() != 2) return false;
  return (p.factors[0] == x && is_square(g, p.factors[1], group, x)) ||
         (p.factors[1] == x && is_square(g, p.factors[0], group, x));
}

bool is_clip(const Rewriter& g, TaskId t, double low, double high) {
  const Attrs& attrs = g.attrs(t);
  return attrs.has("min") && attrs.has("max") && attrs.real("min") == low && is_close(attrs.real("max"), high);
}

// x where b = clip(x + 3, 0, 6), else kNone.
BufferId shifted_relu6(const Rewriter& g, BufferId b, MatchedTasks& group) {
  const TaskId t = g.writer_of_function(b, "clip");
  if (t == kNone || !is_clip(g, t, 0, 6)) return kNone;
  group.push_back(t);
  const auto sum = plus_scalar(g, g.in(t, 0), group);
  return sum && is_close(sum->value, 3) ? sum->x : kNone;
}

// b = function(x)
bool is_function(const Rewriter& g, BufferId b, std::string_view function, BufferId x, MatchedTasks& group) {
  return argument_of(g, b, function, group) == x;
}

bool is_mish_gate(const Rewriter& g, BufferId b, BufferId x, MatchedTasks& group) {
  const BufferId inner = argument_of(g, b, "tanh", group);
  return inner != kNone && is_function(g, inner, "softplus", x, group);
}

// The function whose value is scale * x * gate; empty if none.
std::string gated_function(const Rewriter& g, double scale, BufferId x, BufferId gate, MatchedTasks& group) {
  // Each try gets a group of its own, so that a failed one leaves nothing behind.
  const auto fits = [&](auto&& is_gate) {
    MatchedTasks added;
    if (!is_gate(added)) return false;
    group.insert(group.end(), added.begin(), added.end());
    return true;
  };
  if (is_close(scale, 0.5)) {
    if (fits([&](MatchedTasks& k) { return is_gelu_gate(g, gate, x, k); })) return "gelu";
    if (fits([&](MatchedTasks& k) { return is_gelu_tanh_gate(g, gate, x, k); })) return "gelu_tanh";
  } else if (is_close(scale, 1)) {
    if (fits([&](MatchedTasks& k) { return is_function(g, gate, "sigmoid", x, k); })) return "silu";
    if (fits([&](MatchedTasks& k) { return is_function(g, gate, "hard_sigmoid", x, k); })) return "hard_swish";
    if (fits([&](MatchedTasks& k) { return is_mish_gate(g, gate, x, k); })) return "mish";
  } else if (is_close(scale, 1.0 / 6)) {
    if (fits([&](MatchedTasks& k) { return shifted_relu6(g, gate, k) == x; })) return "hard_swish";
  }
  return "";
}

bool replace(Rewriter& g, TaskId t, BufferId x, const std::string& function, const MatchedTasks& group) {
  if (function.empty() || g.shape(x) != g.shape(g.out(t)) || !is_closed(g, group, t)) return false;
  g.become(t, Op::activation, {{"function", function}}, {x});
  return true;
}

bool recognise_product(Rewriter& g, TaskId t) {
  MatchedTasks group;
  const Product p = product_of(g, g.out(t), group);
  if (p.factors.size() == 1 && is_close(p.scale, 1.0 / 6)) {
    const BufferId x = shifted_relu6(g, p.factors[0], group);
    return x != kNone && replace(g, t, x, "hard_sigmoid", group);
  }
  if (p.factors.size() != 2) return false;
  for (const std::size_t i : {0u, 1u}) {
    MatchedTasks whole = group;
    const BufferId x = p.factors[i];
    if (replace(g, t, x, gated_function(g, p.scale, x, p.factors[1 - i], whole), whole)) return true;
  }
  return false;
}

// clip(x / 6 + 0.5, 0, 1)
bool recognise_clip(Rewriter& g, TaskId t) {
  MatchedTasks group{t};
  if (!is_clip(g, t, 0, 1)) return false;
  const auto sum = plus_scalar(g, g.in(t, 0), group);
  if (!sum || !is_close(sum->value, 0.5)) return false;
  const Product p = product_of(g, sum->x, group);
  return p.factors.size() == 1 && is_close(p.scale, 1.0 / 6) && replace(g, t, p.factors[0], "hard_sigmoid", group);
}

}  // namespace

bool recognise_activation(Rewriter& g, TaskId t) {
  if (g.op(t) == Op::mul) return recognise_product(g, t);
  return g.op(t) == Op::activation && g.attrs(t).text("function") == "clip" && recognise_clip(g, t);
}

}  // namespace overtake
