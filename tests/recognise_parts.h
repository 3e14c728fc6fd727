#pragma once
// Larger ops written out in small ones, the way files bring them.

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "overtake/model.h"

namespace overtake::parts {

using Dims = std::vector<std::int64_t>;

inline Value number(Model& m, double value, const Shape& shape = {}) {
  const float x = static_cast<float>(value);
  return m.constant(shape, std::span(&x, 1), "number");
}
inline Value times(Model& m, Value x, double factor) { return m.mul(x, number(m, factor)); }
inline Value plus(Model& m, Value x, double addend) { return m.add(x, number(m, addend)); }
inline Value minus(Model& m, Value a, Value b) { return m.add(a, times(m, b, -1)); }
inline Value over(Model& m, Value a, Value b) { return m.mul(a, m.activation(b, "reciprocal")); }

// In which order a product is put together.
enum class Association { left, right, gate_first, swapped };

inline Value scaled_gate(Model& m, double scale, Value x, Value gate, Association how) {
  switch (how) {
    case Association::left:
      return m.mul(times(m, x, scale), gate);
    case Association::right:
      return m.mul(x, times(m, gate, scale));
    case Association::gate_first:
      return times(m, m.mul(gate, x), scale);
    case Association::swapped:
      break;
  }
  return m.mul(number(m, scale, {1, 1}), m.mul(x, gate));
}

inline Value gelu(Model& m, Value x, Association how, double inner = 1 / std::numbers::sqrt2) {
  return scaled_gate(m, 0.5, x, plus(m, m.activation(times(m, x, inner), "erf"), 1), how);
}

inline Value gelu_tanh(Model& m, Value x, Association how) {
  const Value cube = m.mul(m.mul(x, x), x);
  const Value inner = times(m, m.add(x, times(m, cube, 0.044715)), std::sqrt(2 / std::numbers::pi));
  return scaled_gate(m, 0.5, x, plus(m, m.activation(inner, "tanh"), 1), how);
}

inline Value relu6_shifted(Model& m, Value x) { return m.clip(plus(m, x, 3), 0, 6); }

// Mean over one axis, which stays with extent 1.
inline Value mean(Model& m, Value x, std::int64_t axis) {
  const Shape& s = m.shape(x);
  Dims dims(s.span().begin(), s.span().end());
  dims[static_cast<std::size_t>(axis)] = 1;
  return m.reshape(m.reduce_mean(x, {axis}), dims);
}

// (x - mean) / sqrt(variance + eps) over one axis
inline Value normalised(Model& m, Value x, std::int64_t axis, double eps = 1e-5) {
  const Value d = minus(m, x, mean(m, x, axis));
  return over(m, d, m.activation(plus(m, mean(m, m.mul(d, d), axis), eps), "sqrt"));
}
inline Value layer_norm(Model& m, Value x, const std::string& name, std::int64_t axis = -1) {
  const Shape s = m.shape(x);
  const Value gamma = m.parameter({s.back()}, {Init::Kind::ones}, name + ".weight");
  const Value beta = m.parameter({s.back()}, {Init::Kind::normal, 0.1}, name + ".bias");
  return m.add(m.mul(normalised(m, x, axis < 0 ? s.rank - 1 : axis), gamma), beta);
}

inline Value group_norm(Model& m, Value x, std::int64_t groups, const Dims& channel_shape, const std::string& name) {
  const Shape s = m.shape(x);
  const Value flat = m.reshape(x, {s[0], groups, -1});
  const std::vector<float> ones(static_cast<std::size_t>(m.shape(flat).back()), 1), zeros(ones.size(), 0);
  const Shape width{m.shape(flat).back()};
  const Value bare = m.layer(
      Op::layer_norm, {flat}, {{"eps", 1e-5}}, name + ".bare",
      {{.shared = m.constant(width, ones, name + ".one")}, {.shared = m.constant(width, zeros, name + ".zero")}});
  const Value image = m.reshape(bare, {s[0], s[1], s[2], s[3]});
  const Value gamma = m.parameter(channel_shape, {Init::Kind::normal, 1}, name + ".weight");
  const Value beta = m.parameter(channel_shape, {Init::Kind::normal, 1}, name + ".bias");
  return m.add(m.mul(image, gamma), beta);
}

// [size, size]: 0 on and below the diagonal, `hidden` above; leading dimensions of `shape` repeat it.
inline Value causal_mask(Model& m, const Shape& shape, double hidden = -std::numeric_limits<double>::infinity()) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()), 0);
  const auto columns = static_cast<std::size_t>(shape.back()), rows = static_cast<std::size_t>(shape[shape.rank - 2u]);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i % columns > i / columns % rows) values[i] = static_cast<float>(hidden);
  return m.constant(shape, values, "causal");
}

// [B, S, E] -> [B, H, S, D]
inline Value heads_of(Model& m, Value x, std::int64_t heads) {
  const Shape s = m.shape(x);
  return m.transpose(m.reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}
// [B, H, S, D] -> [B, S, E]
inline Value without_heads(Model& m, Value x) {
  const Shape s = m.shape(x);
  return m.reshape(m.transpose(x, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}
// [..., a, b] -> [..., b, a]
inline Value last_two_swapped(Model& m, Value x) {
  Dims order;
  for (std::int64_t i = 0; i < m.shape(x).rank; ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return m.transpose(x, order);
}

// The way PyTorch's MultiheadAttention goes: x [B, S, E] through [S, B, 3 E], [3, S, B, E] and [B * H, S, D].
inline Value multi_head_attention(Model& m, Value x, std::int64_t heads, const std::string& name) {
  const Shape s = m.shape(x);
  const std::int64_t b = s[0], n = s[1], e = s[2], d = e / heads;
  const Value w = m.parameter({3 * e, e}, {Init::Kind::normal, 0.2}, name + ".in_proj_weight");
  const Value bias = m.parameter({3 * e}, {Init::Kind::normal, 0.2}, name + ".in_proj_bias");
  const Value qkv = m.add(bias, m.linear(m.transpose(x, {1, 0, 2}), w, {}));
  Value split = m.reshape(m.reshape(qkv, {n, b, 3, e}), {1, n, b, 3, e});
  split = m.reshape(m.transpose(split, {3, 1, 2, 0, 4}), {3, n, b, e});
  std::vector<Value> parts;
  for (std::int64_t i = 0; i < 3; ++i) {
    const Value part = m.reshape(m.slice(split, 0, i, i + 1), {n, b, e});
    parts.push_back(m.transpose(m.reshape(part, {n, b * heads, d}), {1, 0, 2}));
  }
  const double root = std::pow(static_cast<double>(d), -0.25);
  const Value q = times(m, m.reshape(parts[0], {b, heads, n, d}), root);
  const Value k = times(m, m.reshape(m.transpose(parts[1], {0, 2, 1}), {b, heads, d, n}), root);
  const Value o = m.matmul(m.softmax(m.matmul(q, k), 3), m.reshape(parts[2], {b, heads, n, d}), false, false, name);
  const Value rows = m.reshape(m.transpose(o, {2, 0, 1, 3}), {n * b, e});
  return m.transpose(m.reshape(m.linear(rows, {.out = e}, name + ".out_proj"), {n, b, e}), {1, 0, 2});
}

}  // namespace overtake::parts
