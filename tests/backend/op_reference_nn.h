#pragma once
// Convolution, pooling, norms, attention, recurrent layers and losses in double precision, as PyTorch defines them.

#include <algorithm>
#include <array>

#include "op_reference.h"
#include "overtake/model.h"

namespace overtake::reference {

// x [N, C, H, W], w [O, C / groups, kh, kw] (any shape with these elements), bias [O] or null
inline Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor* bias, const Conv2d& o) {
  const std::int64_t batch = x.dims[0], in = x.dims[1], height = x.dims[2], width = x.dims[3];
  const std::int64_t kh = o.kernel_hw.empty() ? o.kernel : o.kernel_hw[0];
  const std::int64_t kw = o.kernel_hw.empty() ? o.kernel : o.kernel_hw[1];
  const Dims pad = o.padding_tlbr.empty() ? Dims(4, o.padding) : o.padding_tlbr;
  const std::int64_t out_h = (height + pad[0] + pad[2] - o.dilation * (kh - 1) - 1) / o.stride + 1;
  const std::int64_t out_w = (width + pad[1] + pad[3] - o.dilation * (kw - 1) - 1) / o.stride + 1;
  const std::int64_t in_group = in / o.groups, out_group = o.out / o.groups;
  Tensor y({batch, o.out, out_h, out_w});
  for_each_index(y.dims, [&](const Dims& i) {
    const std::int64_t channel = i[1], group = channel / out_group;
    double sum = bias != nullptr ? bias->v[at(channel)] : 0.0;
    for (std::int64_t c = 0; c < in_group; ++c)
      for (std::int64_t r = 0; r < kh; ++r)
        for (std::int64_t s = 0; s < kw; ++s) {
          const std::int64_t row = i[2] * o.stride + r * o.dilation - pad[0];
          const std::int64_t column = i[3] * o.stride + s * o.dilation - pad[1];
          if (row < 0 || row >= height || column < 0 || column >= width) continue;
          sum += x(i[0], group * in_group + c, row, column) * w.v[at(((channel * in_group + c) * kh + r) * kw + s)];
        }
    y.v[y.offset(i)] = sum;
  });
  return y;
}

enum class PoolKind { max, average };

inline std::int64_t pooled_size(std::int64_t size, const Pool2d& o) {
  const std::int64_t room = size + 2 * o.padding - o.kernel;
  std::int64_t out = (o.ceil ? room + o.stride - 1 : room) / o.stride + 1;
  if (o.ceil && (out - 1) * o.stride >= size + o.padding) --out;
  return out;
}

inline Tensor pool(const Tensor& x, const Pool2d& o, PoolKind kind) {
  const std::int64_t height = x.dims[2], width = x.dims[3];
  Tensor y({x.dims[0], x.dims[1], pooled_size(height, o), pooled_size(width, o)});
  for_each_index(y.dims, [&](const Dims& i) {
    const std::int64_t top = i[2] * o.stride - o.padding, left = i[3] * o.stride - o.padding;
    const std::int64_t bottom = std::min(top + o.kernel, height + o.padding);
    const std::int64_t right = std::min(left + o.kernel, width + o.padding);
    double sum = 0, largest = -1e300;
    std::int64_t inside = 0;
    for (std::int64_t r = std::max<std::int64_t>(top, 0); r < std::min(bottom, height); ++r)
      for (std::int64_t c = std::max<std::int64_t>(left, 0); c < std::min(right, width); ++c) {
        sum += x(i[0], i[1], r, c);
        largest = std::max(largest, x(i[0], i[1], r, c));
        ++inside;
      }
    const std::int64_t divisor = o.count_include_pad ? (bottom - top) * (right - left) : inside;
    y.v[y.offset(i)] = kind == PoolKind::max ? largest : sum / static_cast<double>(divisor);
  });
  return y;
}

inline Tensor global_pool(const Tensor& x) {
  Tensor y({x.dims[0], x.dims[1]});
  const auto pixels = static_cast<double>(x.dims[2] * x.dims[3]);
  for_each_index(x.dims, [&](const Dims& i) { y(i[0], i[1]) += x.v[x.offset(i)] / pixels; });
  return y;
}

struct Moments {
  std::vector<double> mean, variance;  // biased
  std::vector<std::int64_t> count;
};

// Elements of x with equal set_of(index) belong together; there are `sets` of them.
template <class SetOf>
Moments moments(const Tensor& x, std::int64_t sets, SetOf&& set_of) {
  Moments m{std::vector<double>(at(sets)), std::vector<double>(at(sets)), std::vector<std::int64_t>(at(sets))};
  for_each_index(x.dims, [&](const Dims& i) {
    m.mean[at(set_of(i))] += x.v[x.offset(i)];
    ++m.count[at(set_of(i))];
  });
  for (std::size_t s = 0; s < m.mean.size(); ++s) m.mean[s] /= static_cast<double>(m.count[s]);
  for_each_index(x.dims, [&](const Dims& i) {
    const double d = x.v[x.offset(i)] - m.mean[at(set_of(i))];
    m.variance[at(set_of(i))] += d * d;
  });
  for (std::size_t s = 0; s < m.mean.size(); ++s) m.variance[s] /= static_cast<double>(m.count[s]);
  return m;
}

// gamma and beta belong to dimension `channel`.
template <class SetOf>
Tensor normalized(const Tensor& x, const Moments& m, const Tensor& gamma, const Tensor& beta, std::size_t channel,
                  double eps, SetOf&& set_of) {
  Tensor y(x.dims);
  for_each_index(x.dims, [&](const Dims& i) {
    const std::size_t s = at(set_of(i)), c = at(i[channel]), o = x.offset(i);
    y.v[o] = (x.v[o] - m.mean[s]) / std::sqrt(m.variance[s] + eps) * gamma.v[c] + beta.v[c];
  });
  return y;
}

inline Moments channel_moments(const Tensor& x) {
  return moments(x, x.dims[1], [](const Dims& i) { return i[1]; });
}

inline Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = 1e-5) {
  return normalized(x, channel_moments(x), gamma, beta, 1, eps, [](const Dims& i) { return i[1]; });
}

inline Tensor group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, std::int64_t groups,
                         double eps = 1e-5) {
  const std::int64_t per_group = x.dims[1] / groups;
  const auto set_of = [&](const Dims& i) { return i[0] * groups + i[1] / per_group; };
  return normalized(x, moments(x, x.dims[0] * groups, set_of), gamma, beta, 1, eps, set_of);
}

inline Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = 1e-5) {
  const std::int64_t width = x.dims.back(), rows = static_cast<std::int64_t>(x.v.size()) / width;
  const Tensor flat = reshape(x, {rows, width});
  const auto row = [](const Dims& i) { return i[0]; };
  return reshape(normalized(flat, moments(flat, rows, row), gamma, beta, 1, eps, row), x.dims);
}

// q [B, Sq, E], k, v [B, Sk, E], mask [B, Sk] or null (0 = hidden). Causal: query i sees keys up to i + Sk - Sq.
inline Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Attention& o, const Tensor* mask) {
  const std::int64_t queries = q.dims[1], keys = k.dims[1], width = q.dims[2], head = width / o.heads;
  const double scale = o.scale != 0 ? o.scale : 1.0 / std::sqrt(static_cast<double>(head));
  Tensor y(q.dims);
  for_each_index({q.dims[0], o.heads, queries}, [&](const Dims& i) {
    const std::int64_t b = i[0], first = i[1] * head, query = i[2];
    std::vector<double> p(at(keys), 0.0);
    double sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      if ((o.causal && j > query + keys - queries) || (mask != nullptr && (*mask)(b, j) == 0)) continue;
      double score = 0;
      for (std::int64_t d = first; d < first + head; ++d) score += q(b, query, d) * k(b, j, d);
      sum += p[at(j)] = std::exp(scale * score);
    }
    for (std::int64_t d = first; d < first + head; ++d)
      for (std::int64_t j = 0; j < keys; ++j) y(b, query, d) += p[at(j)] / sum * v(b, j, d);
  });
  return y;
}

inline Tensor embedding(const Tensor& tokens, const Tensor& table) {
  Dims dims = tokens.dims;
  dims.push_back(table.dims[1]);
  Tensor y(dims);
  std::size_t i = 0;
  for (const double token : tokens.v)
    for (std::int64_t d = 0; d < table.dims[1]; ++d) y.v[i++] = table(static_cast<std::int64_t>(token), d);
  return y;
}

struct RecurrentWeights {
  const Tensor &w_ih, &w_hh, &b_ih, &b_hh;
  // Row g of the projection of x (a row of w_ih.dims[1]) and of h.
  double of_x(std::int64_t g, const double* x) const { return row(w_ih, b_ih, g, x); }
  double of_h(std::int64_t g, const double* h) const { return row(w_hh, b_hh, g, h); }

 private:
  static double row(const Tensor& w, const Tensor& b, std::int64_t g, const double* x) {
    double sum = b.v[at(g)];
    for (std::int64_t j = 0; j < w.dims[1]; ++j) sum += w(g, j) * x[j];
    return sum;
  }
};

// x [B, T, I] -> [B, T, H]; gates i, f, g, o
inline Tensor lstm(const Tensor& x, const RecurrentWeights& w) {
  const std::int64_t hidden = w.w_hh.dims[1], inputs = x.dims[2], steps = x.dims[1];
  Tensor y({x.dims[0], steps, hidden});
  for (std::int64_t b = 0; b < x.dims[0]; ++b) {
    std::vector<double> h(at(hidden), 0.0), c(at(hidden), 0.0);
    for (std::int64_t t = 0; t < steps; ++t) {
      const double* xt = &x.v[at((b * steps + t) * inputs)];
      std::vector<double> next(at(hidden));
      for (std::int64_t j = 0; j < hidden; ++j) {
        const auto gate = [&](std::int64_t g) { return w.of_x(g * hidden + j, xt) + w.of_h(g * hidden + j, h.data()); };
        c[at(j)] = sigmoid(gate(1)) * c[at(j)] + sigmoid(gate(0)) * std::tanh(gate(2));
        next[at(j)] = y(b, t, j) = sigmoid(gate(3)) * std::tanh(c[at(j)]);
      }
      h = next;
    }
  }
  return y;
}

// x [B, T, I] -> [B, T, H]; gates r, z, n
inline Tensor gru(const Tensor& x, const RecurrentWeights& w) {
  const std::int64_t hidden = w.w_hh.dims[1], inputs = x.dims[2], steps = x.dims[1];
  Tensor y({x.dims[0], steps, hidden});
  for (std::int64_t b = 0; b < x.dims[0]; ++b) {
    std::vector<double> h(at(hidden), 0.0);
    for (std::int64_t t = 0; t < steps; ++t) {
      const double* xt = &x.v[at((b * steps + t) * inputs)];
      std::vector<double> next(at(hidden));
      for (std::int64_t j = 0; j < hidden; ++j) {
        const auto both = [&](std::int64_t g) { return w.of_x(g * hidden + j, xt) + w.of_h(g * hidden + j, h.data()); };
        const double r = sigmoid(both(0)), z = sigmoid(both(1));
        const double n = std::tanh(w.of_x(2 * hidden + j, xt) + r * w.of_h(2 * hidden + j, h.data()));
        next[at(j)] = y(b, t, j) = (1.0 - z) * n + z * h[at(j)];
      }
      h = next;
    }
  }
  return y;
}

inline double mean_squared_error(const Tensor& x, const Tensor& target) {
  double sum = 0;
  for (std::size_t i = 0; i < x.v.size(); ++i) sum += (x.v[i] - target.v[i]) * (x.v[i] - target.v[i]);
  return sum / static_cast<double>(x.v.size());
}

// {mean loss, rows that count, rows that are right}
inline std::array<double, 3> cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropy& o) {
  const std::int64_t classes = logits.dims.back();
  double sum = 0, counted = 0, correct = 0;
  for (std::size_t row = 0; row < labels.v.size(); ++row) {
    const auto label = static_cast<std::int64_t>(labels.v[row]);
    if (label == o.ignore_index) continue;
    const auto first = logits.v.begin() + static_cast<std::int64_t>(row) * classes;
    double total = 0, all_logs = 0;
    for (std::int64_t c = 0; c < classes; ++c) total += std::exp(first[c]);
    const double lse = std::log(total);
    for (std::int64_t c = 0; c < classes; ++c) all_logs += first[c] - lse;
    sum -= (1.0 - o.smoothing) * (first[label] - lse) + o.smoothing / static_cast<double>(classes) * all_logs;
    counted += 1;
    correct += std::max_element(first, first + classes) - first == label ? 1 : 0;
  }
  return {sum / counted, counted, correct};
}

}  // namespace overtake::reference
