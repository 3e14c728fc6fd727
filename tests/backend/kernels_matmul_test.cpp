#include "kernels/cpu/matmul.h"

#include "kernels_matrix_reference.h"

namespace overtake::kernels {
namespace {

using namespace testing;

// Elements that an operand's storage spans.
std::int64_t extent(const MatmulShape& s, const MatmulOperand& x, std::int64_t rows, std::int64_t cols) {
  const std::int64_t stored_rows = x.transposed ? cols : rows, stored_cols = x.transposed ? rows : cols;
  return (s.batch[0] - 1) * x.batch_stride[0] + (s.batch[1] - 1) * x.batch_stride[1] +
         (stored_rows - 1) * x.row_stride + stored_cols;
}

std::size_t place(const MatmulOperand& x, std::int64_t i0, std::int64_t i1, std::int64_t row, std::int64_t col) {
  const std::int64_t stored_row = x.transposed ? col : row, stored_col = x.transposed ? row : col;
  return size_of(i0 * x.batch_stride[0] + i1 * x.batch_stride[1] + stored_row * x.row_stride + stored_col);
}

std::vector<double> reference(const MatmulShape& s, const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> c(size_of(extent(s, s.c, s.m, s.n)));
  for (std::int64_t i0 = 0; i0 < s.batch[0]; ++i0) {
    for (std::int64_t i1 = 0; i1 < s.batch[1]; ++i1) {
      for (std::int64_t i = 0; i < s.m; ++i) {
        for (std::int64_t j = 0; j < s.n; ++j) {
          double sum = 0.0;
          for (std::int64_t p = 0; p < s.k; ++p) sum += a[place(s.a, i0, i1, i, p)] * b[place(s.b, i0, i1, p, j)];
          c[place(s.c, i0, i1, i, j)] += s.alpha * sum;
        }
      }
    }
  }
  return c;
}

std::vector<MatmulShape> shapes() {
  std::vector<MatmulShape> all;
  for (int form = 0; form < 4; ++form) {
    const bool trans_a = form / 2 == 1, trans_b = form % 2 == 1;
    all.push_back(contiguous_matmul(1, 1, 1, 1, trans_a, trans_b));
    all.push_back(contiguous_matmul(3, 70, 17, 33, trans_a, trans_b));
    MatmulShape broadcast_b = contiguous_matmul(4, 65, 19, 7, trans_a, trans_b);
    broadcast_b.b.batch_stride[0] = broadcast_b.b.batch_stride[1] = 0;
    all.push_back(broadcast_b);
    // [2, 3] batches; a broadcasts over the first, b over the second.
    MatmulShape both = contiguous_matmul(3, 20, 31, 130, trans_a, trans_b);
    both.batch[0] = 2;
    both.alpha = 0.5f;
    both.a.batch_stride[0] = 0;
    both.b.batch_stride[0] = 31 * 130;
    both.b.batch_stride[1] = 0;
    all.push_back(both);
  }
  // Heads side by side: q [2, 9, 3 * 5] times k [2, 9, 3 * 5] transposed, per (batch, head).
  MatmulShape heads;
  heads.batch[0] = 2, heads.batch[1] = 3;
  heads.m = 9, heads.n = 9, heads.k = 5;
  heads.a = {false, 15, {9 * 15, 5}};
  heads.b = {true, 15, {9 * 15, 5}};
  heads.c = {false, 9, {3 * 81, 81}};
  all.push_back(heads);
  return all;
}

template <class T, class C>
void check(const MatmulShape& s, double tolerance) {
  SCOPED_TRACE(::testing::Message() << s.batch[0] << " x " << s.batch[1] << " of " << s.m << " x " << s.n << " x "
                                    << s.k << " transposed " << s.a.transposed << s.b.transposed);
  const auto a = random_values<T>(extent(s, s.a, s.m, s.k), 1), b = random_values<T>(extent(s, s.b, s.k, s.n), 2);
  const std::size_t size = size_of(extent(s, s.c, s.m, s.n));
  std::vector<C> c(size), c_pieces(size);

  matmul(s, a.data(), b.data(), c.data(), 0, matmul_units(s));
  in_odd_pieces(matmul_units(s), [&](std::int64_t begin, std::int64_t end) {
    matmul(s, a.data(), b.data(), c_pieces.data(), begin, end);
  });
  expect_close(c, reference(s, to_double(a), to_double(b)), tolerance, "c");
  EXPECT_TRUE(same_bytes(c, c_pieces));
}

TEST(KernelsMatmul, Float) {
  for (const MatmulShape& s : shapes()) check<float, float>(s, 2e-6);
}

TEST(KernelsMatmul, Bf16) {
  for (const MatmulShape& s : shapes()) check<bf16, bf16>(s, 0x1p-8);
}

TEST(KernelsMatmul, Bf16ToFloat) {
  for (const MatmulShape& s : shapes()) check<bf16, float>(s, 2e-6);
}

}  // namespace
}  // namespace overtake::kernels
