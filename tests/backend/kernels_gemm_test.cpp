#include "kernels/cpu/gemm.h"

#include "kernels_matrix_reference.h"

namespace overtake::kernels {
namespace {

using namespace testing;

struct Product {
  std::int64_t m, n, k;
  bool trans_a, trans_b;
  float alpha, beta;
  std::int64_t lda() const { return (trans_a ? m : k) + 3; }
  std::int64_t ldb() const { return (trans_b ? k : n) + 5; }
  std::int64_t ldc() const { return n + 2; }
};

std::vector<Product> products() {
  const std::int64_t sizes[][3] = {{1, 1, 1},    {3, 7, 17},    {14, 32, 64},  {17, 33, 5},    {64, 64, 64},
                                   {29, 100, 1}, {128, 17, 31}, {15, 540, 70}, {45, 64, 1030}, {530, 20, 33},
                                   {2, 16, 300}, {5, 48, 513},  {7, 15, 257}};
  std::vector<Product> all;
  for (const auto& s : sizes) {
    for (int form = 0; form < 4; ++form) {
      const bool trans_a = form / 2 == 1, trans_b = form % 2 == 1;
      all.push_back({s[0], s[1], s[2], trans_a, trans_b, 1.0f, 0.0f});
      all.push_back({s[0], s[1], s[2], trans_a, trans_b, 0.5f, 1.0f});
      all.push_back({s[0], s[1], s[2], trans_a, trans_b, -1.25f, 0.75f});
    }
  }
  return all;
}

// c by the definition, and the sum of the magnitudes of its terms, to which rounding errors are relative.
template <class T, class C>
void reference(const Product& p, const std::vector<T>& a, const std::vector<T>& b, const std::vector<C>& c,
               std::vector<double>& expected, std::vector<double>& magnitude) {
  expected = to_double(c);
  magnitude.assign(expected.size(), 0.0);
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = 0.0, terms = 0.0;
      for (std::int64_t q = 0; q < p.k; ++q) {
        const double x = to_float(a[size_of(p.trans_a ? q * p.lda() + i : i * p.lda() + q)]);
        const double y = to_float(b[size_of(p.trans_b ? j * p.ldb() + q : q * p.ldb() + j)]);
        sum += x * y;
        terms += std::fabs(x * y);
      }
      const std::size_t at = size_of(i * p.ldc() + j);
      const double before = p.beta == 0.0f ? 0.0 : p.beta * expected[at];
      magnitude[at] = std::fabs(p.alpha) * terms + std::fabs(before);
      expected[at] = p.alpha * sum + before;
    }
  }
}

template <class T, class C>
void check(const Product& p) {
  SCOPED_TRACE(::testing::Message() << p.m << " x " << p.n << " x " << p.k << " transposed " << p.trans_a << p.trans_b
                                    << " alpha " << p.alpha << " beta " << p.beta);
  const auto a = random_values<T>((p.trans_a ? p.k : p.m) * p.lda(), 1);
  const auto b = random_values<T>((p.trans_b ? p.n : p.k) * p.ldb(), 2);
  const auto start = random_values<C>(p.m * p.ldc(), 3);
  std::vector<double> expected, magnitude;
  reference(p, a, b, start, expected, magnitude);

  std::vector<C> c = start;
  gemm(p.trans_a, p.trans_b, p.m, p.n, p.k, p.alpha, a.data(), p.lda(), b.data(), p.ldb(), p.beta, c.data(), p.ldc());
  const double rounding = sizeof(C) == 2 ? 0x1p-8 : 0.0;  // of the result
  for (std::size_t i = 0; i < c.size(); ++i) {
    const double tolerance = 2e-6 * magnitude[i] + rounding * std::fabs(expected[i]);
    ASSERT_NEAR(static_cast<double>(to_float(c[i])), expected[i], tolerance) << "at " << i;  // gaps: exactly
  }

  std::vector<C> by_rows = start;
  in_odd_pieces(p.m, [&](std::int64_t begin, std::int64_t end) {
    const T* rows = a.data() + (p.trans_a ? begin : begin * p.lda());
    gemm(p.trans_a, p.trans_b, end - begin, p.n, p.k, p.alpha, rows, p.lda(), b.data(), p.ldb(), p.beta,
         by_rows.data() + begin * p.ldc(), p.ldc());
  });
  EXPECT_TRUE(same_bytes(c, by_rows));

  std::vector<C> by_columns = start;
  in_odd_pieces(p.n, [&](std::int64_t begin, std::int64_t end) {
    const T* columns = b.data() + (p.trans_b ? begin * p.ldb() : begin);
    gemm(p.trans_a, p.trans_b, p.m, end - begin, p.k, p.alpha, a.data(), p.lda(), columns, p.ldb(), p.beta,
         by_columns.data() + begin, p.ldc());
  });
  EXPECT_TRUE(same_bytes(c, by_columns));

  if constexpr (sizeof(C) == 4) {
    AlignedScratch packed(packed_b_bytes<T>(p.k, p.n));
    pack_b(p.trans_b, p.k, p.n, b.data(), p.ldb(), packed.data());
    std::vector<C> from_packed = start;
    gemm_packed(p.trans_a, p.m, p.n, p.k, p.alpha, a.data(), p.lda(), packed.data(), p.beta, from_packed.data(),
                p.ldc());
    EXPECT_TRUE(same_bytes(c, from_packed));
  }
}

TEST(KernelsGemm, FloatMatchesReferenceAndDoesNotDependOnTheSplit) {
  for (const Product& p : products()) check<float, float>(p);
}

TEST(KernelsGemm, Bf16ToFloatMatchesReferenceAndDoesNotDependOnTheSplit) {
  for (const Product& p : products()) check<bf16, float>(p);
}

TEST(KernelsGemm, Bf16ToBf16MatchesReferenceAndDoesNotDependOnTheSplit) {
  for (const Product& p : products()) check<bf16, bf16>(p);
}

// Transposing an operand in memory, and asking for its transpose, changes no bit.
TEST(KernelsGemm, FormsAgreeBitForBit) {
  const std::int64_t m = 37, n = 70, k = 300;
  const auto a = random_values<float>(m * k, 1), b = random_values<float>(k * n, 2);
  std::vector<float> a_t(a.size()), b_t(b.size());
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) a_t[size_of(p * m + i)] = a[size_of(i * k + p)];
  }
  for (std::int64_t p = 0; p < k; ++p) {
    for (std::int64_t j = 0; j < n; ++j) b_t[size_of(j * k + p)] = b[size_of(p * n + j)];
  }
  std::vector<float> nn(size_of(m * n)), nt(nn), tn(nn), tt(nn);
  gemm(false, false, m, n, k, 1.0f, a.data(), k, b.data(), n, 0.0f, nn.data(), n);
  gemm(false, true, m, n, k, 1.0f, a.data(), k, b_t.data(), k, 0.0f, nt.data(), n);
  gemm(true, false, m, n, k, 1.0f, a_t.data(), m, b.data(), n, 0.0f, tn.data(), n);
  gemm(true, true, m, n, k, 1.0f, a_t.data(), m, b_t.data(), k, 0.0f, tt.data(), n);
  EXPECT_TRUE(same_bytes(nn, nt));
  EXPECT_TRUE(same_bytes(nn, tn));
  EXPECT_TRUE(same_bytes(nn, tt));
}

TEST(KernelsGemm, BetaZeroDoesNotReadC) {
  const float a[] = {2.0f}, b[] = {3.0f};
  float c[] = {std::nanf("")};
  gemm(false, false, 1, 1, 1, 1.0f, a, 1, b, 1, 0.0f, c, 1);
  EXPECT_EQ(c[0], 6.0f);
  c[0] = std::nanf("");
  gemm(false, false, 1, 1, 0, 1.0f, a, 1, b, 1, 0.0f, c, 1);
  EXPECT_EQ(c[0], 0.0f);
}

}  // namespace
}  // namespace overtake::kernels
