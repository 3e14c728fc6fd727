#include "kernels/cpu/attention.h"

#include "kernels_matrix_reference.h"

namespace overtake::kernels {
namespace {

using namespace testing;

struct Case {
  std::int64_t batch, heads, head_dim, queries, keys;
  bool causal, masked, packed;  // packed: q, k and v are thirds of the rows of one tensor
};

const Case kCases[] = {{1, 1, 1, 1, 1, false, false, false},    {2, 3, 7, 5, 5, true, false, true},
                       {2, 2, 16, 9, 13, false, true, false},   {1, 2, 8, 130, 300, false, true, false},
                       {1, 1, 5, 270, 270, true, true, true},   {1, 2, 64, 40, 40, true, false, true},
                       {2, 1, 3, 7, 4, true, true, false},      {1, 1, 300, 6, 20, false, false, false},
                       {1, 1, 17, 150, 260, true, false, false}};

// One tensor of q, k, v: where element (b, position, h, d) lies.
struct Layout {
  std::int64_t offset, positions, stride, head_dim;
  std::size_t at(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) const {
    return size_of(offset + (b * positions + i) * stride + h * head_dim + d);
  }
};

struct Problem {
  AttentionShape shape;
  Layout q, k, v, o;
  std::int64_t input_size, o_size;  // q, k and v lie in one array
  std::vector<std::uint8_t> mask;   // [B, Sk], or empty
};

Problem make_problem(const Case& c) {
  Problem p;
  const std::int64_t width = c.heads * c.head_dim;
  p.shape.batch = c.batch, p.shape.heads = c.heads, p.shape.head_dim = c.head_dim;
  p.shape.queries = c.queries, p.shape.keys = c.keys;
  p.shape.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  p.shape.causal = c.causal;
  if (c.packed) {
    p.q = {0, c.queries, 3 * width, c.head_dim};
    p.k = {width, c.keys, 3 * width, c.head_dim};
    p.v = {2 * width, c.keys, 3 * width, c.head_dim};
    p.input_size = c.batch * c.keys * 3 * width;
  } else {
    p.q = {0, c.queries, width, c.head_dim};
    p.k = {c.batch * c.queries * width, c.keys, width, c.head_dim};
    p.v = {p.k.offset + c.batch * c.keys * width, c.keys, width, c.head_dim};
    p.input_size = p.v.offset + c.batch * c.keys * width;
  }
  p.o = {0, c.queries, width + 2, c.head_dim};
  p.o_size = c.batch * c.queries * (width + 2);
  p.shape.q_stride = p.q.stride, p.shape.k_stride = p.k.stride, p.shape.v_stride = p.v.stride;
  p.shape.o_stride = p.o.stride;
  if (c.masked) {
    std::mt19937 engine(7);
    for (std::int64_t j = 0; j < c.batch * c.keys; ++j) p.mask.push_back(engine() % 3 != 0);
    for (std::int64_t j = 0; j < std::min<std::int64_t>(c.keys, 3); ++j) p.mask[size_of(j)] = 0;
    if (c.batch > 1) std::fill(p.mask.begin() + static_cast<std::ptrdiff_t>(c.keys), p.mask.end(), std::uint8_t{0});
  }
  return p;
}

// o (in the layout of o, zeros in its gaps) and lse [B, H, Sq], by the definition.
void reference(const Problem& p, const std::vector<double>& in, std::vector<double>& o, std::vector<double>& lse) {
  const AttentionShape& s = p.shape;
  o.assign(size_of(p.o_size), 0.0);
  lse.assign(size_of(s.batch * s.heads * s.queries), -INFINITY);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t i = 0; i < s.queries; ++i) {
        std::vector<double> weight(size_of(s.keys), 0.0);
        double total = 0.0;
        for (std::int64_t j = 0; j < s.keys; ++j) {
          const bool hidden = s.causal && j > i + s.keys - s.queries;
          if (hidden || (!p.mask.empty() && p.mask[size_of(b * s.keys + j)] == 0)) continue;
          double score = 0.0;
          for (std::int64_t d = 0; d < s.head_dim; ++d) score += in[p.q.at(b, i, h, d)] * in[p.k.at(b, j, h, d)];
          weight[size_of(j)] = std::exp(score * static_cast<double>(s.scale));
          total += weight[size_of(j)];
        }
        if (total == 0.0) continue;
        lse[size_of((b * s.heads + h) * s.queries + i)] = std::log(total);
        for (std::int64_t j = 0; j < s.keys; ++j) {
          const double share = weight[size_of(j)] / total;
          if (share == 0.0) continue;
          for (std::int64_t d = 0; d < s.head_dim; ++d) o[p.o.at(b, i, h, d)] += share * in[p.v.at(b, j, h, d)];
        }
      }
    }
  }
}

template <class T>
void check(const Case& c, double tolerance, double gradient_tolerance) {
  SCOPED_TRACE(::testing::Message() << c.batch << " x " << c.heads << " heads of " << c.head_dim << ", " << c.queries
                                    << " queries, " << c.keys << " keys, causal " << c.causal << " masked "
                                    << c.masked);
  const Problem p = make_problem(c);
  const std::int64_t units = c.batch * c.heads;
  const auto in = random_values<T>(p.input_size, 1), o_grad = random_values<T>(p.o_size, 2);
  const AttentionInputs<T> inputs{in.data() + p.q.offset, in.data() + p.k.offset, in.data() + p.v.offset,
                                  p.mask.empty() ? nullptr : p.mask.data()};
  AlignedScratch scratch(attention_scratch_bytes<T>(p.shape));
  AlignedScratch grad_scratch(attention_grad_scratch_bytes<T>(p.shape));

  std::vector<T> o(size_of(p.o_size)), o_pieces(o.size());
  std::vector<float> lse(size_of(units * c.queries)), lse_pieces(lse.size());
  attention_forward(p.shape, inputs, o.data(), lse.data(), scratch.data(), 0, units);
  std::vector<double> expected, expected_lse;
  reference(p, to_double(in), expected, expected_lse);
  expect_close(o, expected, tolerance, "o");
  for (std::size_t i = 0; i < lse.size(); ++i) {
    if (std::isinf(expected_lse[i])) {
      ASSERT_EQ(lse[i], -INFINITY);
    } else {
      ASSERT_NEAR(lse[i], expected_lse[i], tolerance * 10.0) << "lse at " << i;
    }
  }

  std::vector<T> grad(in.size()), grad_pieces(in.size());
  const auto differentiate = [&](std::vector<T>& to, std::int64_t begin, std::int64_t end) {
    const AttentionGrads<T> grads{
        to.data() + p.q.offset, to.data() + p.k.offset, to.data() + p.v.offset, p.q.stride, p.k.stride, p.v.stride};
    attention_input_grad(p.shape, inputs, o.data(), lse.data(), o_grad.data(), grads, grad_scratch.data(), begin, end);
  };
  differentiate(grad, 0, units);
  std::vector<double> value = to_double(in);
  const std::vector<double> o_grad_value = to_double(o_grad);
  const auto loss = [&] {
    std::vector<double> y, unused;
    reference(p, value, y, unused);
    double sum = 0.0;
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t i = 0; i < c.queries; ++i) {
        for (std::int64_t h = 0; h < c.heads; ++h) {
          for (std::int64_t d = 0; d < c.head_dim; ++d) {
            sum += y[p.o.at(b, i, h, d)] * o_grad_value[p.o.at(b, i, h, d)];
          }
        }
      }
    }
    return sum;
  };
  expect_gradient(grad, value, loss, gradient_tolerance, "dq, dk, dv", 90);

  in_odd_pieces(units, [&](std::int64_t begin, std::int64_t end) {
    attention_forward(p.shape, inputs, o_pieces.data(), lse_pieces.data(), scratch.data(), begin, end);
    differentiate(grad_pieces, begin, end);
  });
  EXPECT_TRUE(same_bytes(o, o_pieces));
  EXPECT_TRUE(same_bytes(lse, lse_pieces));
  EXPECT_TRUE(same_bytes(grad, grad_pieces));
}

TEST(KernelsAttention, Float) {
  for (const Case& c : kCases) check<float>(c, 3e-6, 3e-5);
}

TEST(KernelsAttention, Bf16) {
  for (const Case& c : kCases) check<bf16>(c, 1.5e-2, 6e-2);
}

// Scores far beyond the range of exp must not overflow, and the largest wins.
TEST(KernelsAttention, LargeScores) {
  AttentionShape s;
  s.batch = s.heads = s.head_dim = s.queries = 1;
  s.keys = 3;
  s.q_stride = s.k_stride = s.v_stride = s.o_stride = 1;
  const float q[] = {100.0f}, k[] = {-50.0f, 30.0f, 29.0f}, v[] = {1.0f, 2.0f, 3.0f};
  float o = 0.0f, lse = 0.0f;
  AlignedScratch scratch(attention_scratch_bytes<float>(s));
  attention_forward<float>(s, {q, k, v, nullptr}, &o, &lse, scratch.data(), 0, 1);
  EXPECT_EQ(o, 2.0f);
  EXPECT_EQ(lse, 3000.0f);
}

}  // namespace
}  // namespace overtake::kernels
