#pragma once
// The mathematics of tensors, elementwise ops, products and moves, written down once more in double precision as plain
// loops. Nothing here shares a line with the library. Networks' own ops are in op_reference_nn.h.

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace overtake::reference {

using Dims = std::vector<std::int64_t>;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Tensor {
  Dims dims;
  std::vector<double> v;  // row-major

  Tensor() = default;
  explicit Tensor(Dims shape) : dims(std::move(shape)), v(at(count(dims)), 0.0) {}

  static std::int64_t count(const Dims& dims) {
    std::int64_t n = 1;
    for (const std::int64_t d : dims) n *= d;
    return n;
  }
  std::size_t offset(const Dims& index) const {
    std::int64_t o = 0;
    for (std::size_t d = 0; d < dims.size(); ++d) o = o * dims[d] + index[d];
    return at(o);
  }
  template <class... Index>
  double& operator()(Index... index) {
    return v[offset({index...})];
  }
  template <class... Index>
  double operator()(Index... index) const {
    return v[offset({index...})];
  }
};

// Calls body(index) for every index of these dimensions, the last one running fastest.
template <class Body>
void for_each_index(const Dims& dims, Body&& body) {
  Dims index(dims.size(), 0);
  for (std::int64_t left = Tensor::count(dims); left > 0; --left) {
    body(std::as_const(index));
    for (std::size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

inline double activate(const std::string& function, double x) {
  const auto hard_sigmoid = [](double z) { return std::fmin(std::fmax(z / 6.0 + 0.5, 0.0), 1.0); };
  if (function.empty() || function == "none") return x;
  if (function == "relu") return x > 0 ? x : 0;
  if (function == "gelu") return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
  if (function == "gelu_tanh")
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  if (function == "silu") return x * sigmoid(x);
  if (function == "sigmoid") return sigmoid(x);
  if (function == "tanh") return std::tanh(x);
  if (function == "hard_sigmoid") return hard_sigmoid(x);
  if (function == "hard_swish") return x * hard_sigmoid(x);
  throw std::invalid_argument(function);
}

// Fixed numbers, exact in bfloat16.
inline Tensor fixed_tensor(const Dims& dims) {
  Tensor t(dims);
  for (std::size_t i = 0; i < t.v.size(); ++i)
    t.v[i] = static_cast<double>(static_cast<std::int64_t>(i * 29 % 61) - 30) * 0x1p-5 + 0x1p-6;
  return t;
}

inline Tensor activation(const std::string& function, Tensor x) {
  for (double& value : x.v) value = activate(function, value);
  return x;
}

// numpy's broadcasting.
template <class Combine>
Tensor binary(const Tensor& a, const Tensor& b, Combine&& combine) {
  const std::size_t rank = std::max(a.dims.size(), b.dims.size());
  const auto stretched = [&](const Tensor& t) {
    Dims dims(rank - t.dims.size(), 1);
    dims.insert(dims.end(), t.dims.begin(), t.dims.end());
    return dims;
  };
  const Dims da = stretched(a), db = stretched(b);
  Dims dims(rank);
  for (std::size_t d = 0; d < rank; ++d) dims[d] = std::max(da[d], db[d]);
  const auto pick = [&](const Tensor& t, const Dims& of, const Dims& index) {
    std::int64_t o = 0;
    for (std::size_t d = 0; d < rank; ++d) o = o * of[d] + (of[d] == 1 ? 0 : index[d]);
    return t.v[at(o)];
  };
  Tensor y(dims);
  std::size_t i = 0;
  for_each_index(dims, [&](const Dims& index) { y.v[i++] = combine(pick(a, da, index), pick(b, db, index)); });
  return y;
}
inline Tensor add(const Tensor& a, const Tensor& b) {
  return binary(a, b, [](double x, double y) { return x + y; });
}
inline Tensor mul(const Tensor& a, const Tensor& b) {
  return binary(a, b, [](double x, double y) { return x * y; });
}

// x [..., in], w [out, in], bias [out] or null -> [..., out]
inline Tensor linear(const Tensor& x, const Tensor& w, const Tensor* bias) {
  const std::int64_t in = w.dims[1], out = w.dims[0], rows = static_cast<std::int64_t>(x.v.size()) / in;
  Dims dims = x.dims;
  dims.back() = out;
  Tensor y(dims);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = bias != nullptr ? bias->v[at(o)] : 0.0;
      for (std::int64_t i = 0; i < in; ++i) sum += x.v[at(r * in + i)] * w(o, i);
      y.v[at(r * out + o)] = sum;
    }
  return y;
}

// a [..., m, k] (or [..., k, m]), b [..., k, n] (or [..., n, k]), or b without leading dimensions
inline Tensor matmul(const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  const std::size_t ra = a.dims.size(), rb = b.dims.size();
  const std::int64_t a0 = a.dims[ra - 2], a1 = a.dims[ra - 1], b0 = b.dims[rb - 2], b1 = b.dims[rb - 1];
  const std::int64_t m = trans_a ? a1 : a0, k = trans_a ? a0 : a1, n = trans_b ? b0 : b1;
  const std::int64_t batches = static_cast<std::int64_t>(a.v.size()) / (a0 * a1);
  Dims dims = a.dims;
  dims[ra - 2] = m;
  dims[ra - 1] = n;
  Tensor c(dims);
  for (std::int64_t batch = 0; batch < batches; ++batch)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l)
          sum += a.v[at(batch * a0 * a1 + (trans_a ? l * a1 + i : i * a1 + l))] *
                 b.v[at((rb == 2 ? 0 : batch * b0 * b1) + (trans_b ? j * b1 + l : l * b1 + j))];
        c.v[at((batch * m + i) * n + j)] = sum;
      }
  return c;
}

inline Tensor concat(const std::vector<Tensor>& xs, std::int64_t axis) {
  Dims dims = xs[0].dims;
  dims[at(axis)] = 0;
  for (const Tensor& x : xs) dims[at(axis)] += x.dims[at(axis)];
  Tensor y(dims);
  std::int64_t begin = 0;
  for (const Tensor& x : xs) {
    std::size_t i = 0;
    for_each_index(x.dims, [&](Dims index) {
      index[at(axis)] += begin;
      y.v[y.offset(index)] = x.v[i++];
    });
    begin += x.dims[at(axis)];
  }
  return y;
}

inline Tensor slice(const Tensor& x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  Dims dims = x.dims;
  dims[at(axis)] = end - begin;
  Tensor y(dims);
  std::size_t i = 0;
  for_each_index(dims, [&](Dims index) {
    index[at(axis)] += begin;
    y.v[i++] = x.v[x.offset(index)];
  });
  return y;
}

inline Tensor reshape(Tensor x, const Dims& dims) {
  if (Tensor::count(dims) != static_cast<std::int64_t>(x.v.size())) throw std::invalid_argument("reshape");
  x.dims = dims;
  return x;
}

inline Tensor transpose(const Tensor& x, const Dims& order) {
  Dims dims(order.size());
  for (std::size_t d = 0; d < order.size(); ++d) dims[d] = x.dims[at(order[d])];
  Tensor y(dims);
  std::size_t i = 0;
  for_each_index(dims, [&](const Dims& index) {
    Dims from(order.size());
    for (std::size_t d = 0; d < order.size(); ++d) from[at(order[d])] = index[d];
    y.v[i++] = x.v[x.offset(from)];
  });
  return y;
}

inline Tensor softmax(const Tensor& x, std::int64_t axis) {
  Tensor y(x.dims);
  Dims outer = x.dims;
  outer[at(axis)] = 1;
  for_each_index(outer, [&](Dims index) {
    double sum = 0;
    const auto each = [&](auto&& body) {
      for (index[at(axis)] = 0; index[at(axis)] < x.dims[at(axis)]; ++index[at(axis)]) body(x.offset(index));
    };
    each([&](std::size_t o) { sum += std::exp(x.v[o]); });
    each([&](std::size_t o) { y.v[o] = std::exp(x.v[o]) / sum; });
  });
  return y;
}

}  // namespace overtake::reference
