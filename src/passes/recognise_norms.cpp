// Layer norm and group norm from their parts. A norm is first found bare, with constants for gamma (1) and beta (0);
// the product and the sum behind it then give it its own.

#include <algorithm>

#include "passes/recognise_rules.h"
#include "rewrite/pattern.h"

namespace overtake {
namespace {

constexpr double kExact = 1e-5;  // for numbers that follow from a shape

bool is_filled(const Rewriter& g, BufferId b, float value) {
  const auto all = g.values(b);
  return !all.empty() && std::ranges::all_of(all, [&](float x) { return x == value; });
}

// What the sum over the last dimension is taken of where b = scale * that sum, else kNone; b is [..., 1].
BufferId scaled_sum(const Rewriter& g, BufferId b, double scale, MatchedTasks& group) {
  const Scaled s = without_scale_and_reshape(g, b, group);
  const TaskId t = g.writer(s.source, Op::reduce);
  if (t == kNone) return kNone;
  group.push_back(t);
  const BufferId x = g.in(t, 0);
  const Shape& shape = g.shape(x);
  const bool is_last = g.attrs(t).integers("axes") == std::vector<std::int64_t>{shape.rank - 1};
  const double found = s.scale * g.attrs(t).real("scale", 1.0) * static_cast<double>(shape.back());
  return is_last && is_close(found, scale, kExact) ? x : kNone;
}

bool is_row_number(const Rewriter& g, BufferId b, BufferId x) {
  Shape rows = g.shape(x);
  rows[rows.rank - 1u] = 1;
  return g.shape(b) == rows;
}

// x where b = x - mean(x), else kNone.
BufferId centred(const Rewriter& g, BufferId b, MatchedTasks& group) {
  const TaskId t = g.writer(b, Op::add);
  if (t == kNone) return kNone;
  for (const std::size_t i : {0u, 1u}) {
    MatchedTasks added{t};
    const BufferId x = g.in(t, i), mean = g.in(t, 1 - i);
    if (g.shape(x).rank < 2 || !is_row_number(g, mean, x) || scaled_sum(g, mean, -1.0, added) != x) continue;
    group.insert(group.end(), added.begin(), added.end());
    return x;
  }
  return kNone;
}

// What is under 1 / sqrt, else kNone.
BufferId under_inverse_root(const Rewriter& g, BufferId b, MatchedTasks& group) {
  b = without_reshape(g, b, group);
  const bool root_first = g.writer_of_function(b, "reciprocal") != kNone;
  b = argument_of(g, b, root_first ? "reciprocal" : "sqrt", group);
  if (b == kNone) return kNone;
  return argument_of(g, without_reshape(g, b, group), root_first ? "sqrt" : "reciprocal", group);
}

struct Spread {
  BufferId x = kNone;
  double eps = 0;
};

// b = 1 / sqrt(mean((x - mean(x))^2) + eps)
Spread inverse_spread(const Rewriter& g, BufferId b, MatchedTasks& group) {
  const BufferId inner = under_inverse_root(g, b, group);
  if (inner == kNone) return {};
  const auto sum = plus_scalar(g, without_reshape(g, inner, group), group);
  if (!sum || sum->value < 0) return {};
  const BufferId squares = scaled_sum(g, sum->x, 1.0, group);
  if (squares == kNone) return {};
  const Product p = product_of(g, squares, group);
  if (p.factors.size() != 2 || !is_close(p.scale, 1, kExact)) return {};
  const BufferId x = centred(g, p.factors[0], group);
  const bool is_variance = x != kNone && centred(g, p.factors[1], group) == x && is_row_number(g, b, x);
  return is_variance ? Spread{x, sum->value} : Spread{};
}

// The factors of a bare norm: x - mean(x), and 1 / its spread; perhaps gamma.
bool make_layer_norm(Rewriter& g, TaskId t, BufferId difference, BufferId spread, BufferId gamma, MatchedTasks group) {
  const Spread s = inverse_spread(g, spread, group);
  if (s.x == kNone || centred(g, difference, group) != s.x) return false;
  const Shape width{g.shape(s.x).back()};
  if (gamma != kNone && (!g.is_parameter(gamma) || g.shape(gamma) != width)) return false;
  if (g.shape(g.out(t)) != g.shape(s.x) || !is_closed(g, group, t)) return false;
  g.become(t, Op::layer_norm, {{"eps", s.eps}}, {s.x},
           {gamma == kNone ? g.filled(width, 1) : gamma, g.filled(width, 0)});
  return true;
}

bool is_bare(const Rewriter& g, TaskId norm) {
  return is_filled(g, g.in(norm, 1), 1) && is_filled(g, g.in(norm, 2), 0);
}

// The vector of a norm's width that b is a view of, spread over its channels; kNone if it is not.
BufferId norm_parameter(Rewriter& g, TaskId norm, BufferId b) {
  const Shape& x = g.shape(g.in(norm, 0));
  if (g.op(norm) == Op::layer_norm) return g.is_parameter(b) && g.shape(b) == Shape{x.back()} ? b : kNone;
  const Shape channels{x[1]};
  if (g.shape(b) != Shape{x[1], 1, 1} && g.shape(b) != Shape{1, x[1], 1, 1}) return kNone;
  if (const TaskId view = g.writer(b, Op::reshape); view != kNone) {
    const BufferId whole = g.in(view, 0);
    return g.is_parameter(whole) && g.shape(whole) == channels ? whole : kNone;
  }
  if (!g.is_parameter(b) || (g.role(b) == Role::weight && g.readers(b) != 1)) return kNone;
  return g.reshaped_parameter(b, channels);
}

}  // namespace

bool recognise_layer_norm(Rewriter& g, TaskId t) {
  if (g.op(t) != Op::mul) return false;
  MatchedTasks group;
  const Product p = product_of(g, g.out(t), group);
  if (p.factors.size() < 2 || p.factors.size() > 3 || !is_close(p.scale, 1, kExact)) return false;
  for (std::size_t spread = 0; spread < p.factors.size(); ++spread)
    for (std::size_t difference = 0; difference < p.factors.size(); ++difference) {
      if (difference == spread) continue;
      const BufferId gamma = p.factors.size() == 3 ? p.factors[3 - spread - difference] : kNone;
      if (make_layer_norm(g, t, p.factors[difference], p.factors[spread], gamma, group)) return true;
    }
  return false;
}

// [N, C, H, W] -> [N, G, rest] -> bare layer norm -> [N, C, H, W]
bool recognise_group_norm(Rewriter& g, TaskId t) {
  if (g.op(t) != Op::reshape) return false;
  const TaskId norm = g.writer(g.in(t, 0), Op::layer_norm);
  if (norm == kNone || !is_bare(g, norm)) return false;
  const TaskId split = g.writer(g.in(norm, 0), Op::reshape);
  if (split == kNone || !is_closed(g, {split, norm, t}, t)) return false;
  const Shape groups = g.shape(g.out(norm)), image = g.shape(g.out(t));
  if (groups.rank != 3 || image.rank != 4 || groups[0] != image[0] || image[1] % groups[1] != 0) return false;
  BufferId x = g.in(split, 0);
  if (g.shape(x) != image)
    x = g.insert(t, Op::reshape, {{"shape", std::vector<std::int64_t>(image.span().begin(), image.span().end())}}, {x});
  const Shape channels{image[1]};
  const Attrs attrs{{"eps", g.attrs(norm).real("eps")}, {"groups", groups[1]}};
  g.become(t, Op::group_norm, attrs, {x}, {g.filled(channels, 1), g.filled(channels, 0)});
  return true;
}

bool scale_norm(Rewriter& g, TaskId t) {
  const bool is_product = g.op(t) == Op::mul;
  if (!is_product && g.op(t) != Op::add) return false;
  for (const std::size_t i : {0u, 1u}) {
    const BufferId y = g.in(t, i), other = g.in(t, 1 - i);
    const TaskId norm = g.writer(y);
    if (norm == kNone || (g.op(norm) != Op::layer_norm && g.op(norm) != Op::group_norm)) continue;
    const bool is_open = is_product ? is_bare(g, norm) : is_filled(g, g.in(norm, 2), 0);
    if (!is_open || g.readers(y) != 1 || g.shape(y) != g.shape(g.out(t))) continue;
    const BufferId parameter = norm_parameter(g, norm, other);
    if (parameter == kNone) continue;
    const BufferId gamma = is_product ? parameter : g.in(norm, 1), beta = is_product ? g.in(norm, 2) : parameter;
    g.become(t, g.op(norm), Attrs(g.attrs(norm)), {g.in(norm, 0)}, {gamma, beta});
    return true;
  }
  return false;
}

}  // namespace overtake
